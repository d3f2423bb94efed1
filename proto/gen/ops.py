def parse_op(*a): return None
def derive_op(*a): return None
