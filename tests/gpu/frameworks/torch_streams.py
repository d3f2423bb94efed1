"""Non-default streams, events, waits, priorities, record_stream and timing."""
import result

torch = result.torch_ready(deterministic=True)
size = 1 << 20
main = torch.cuda.current_stream()
low, high = torch.cuda.Stream.priority_range()
result.same("priority_range", f"{low} {high}")
streams = [torch.cuda.Stream(priority=p) for p in (low, high, 0, 0)]
for stream, wanted in zip(streams, (low, high, 0, 0)):
    result.same("priority", stream.priority)
data = torch.randn(size).cuda()
parts = []
for number, stream in enumerate(streams):
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        part = data * (number + 1)
        for _ in range(20):
            part = part.sin() + data
        part.record_stream(stream)
        parts.append(part)
for stream in streams:
    main.wait_stream(stream)
result.tensor("sum_of_streams", torch.stack(parts).sum(0))

# A chain through events over two streams: each step needs the other's last one.
first, second = streams[2], streams[3]
value = torch.zeros(size, device="cuda")
torch.cuda.synchronize()
for turn in range(50):
    stream = first if turn % 2 == 0 else second
    with torch.cuda.stream(stream):
        value.add_(turn).mul_(1.01)
        event = torch.cuda.Event()
        event.record()
    (second if turn % 2 == 0 else first).wait_event(event)
torch.cuda.synchronize()
result.tensor("event_chain", value)

start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
big = torch.randn(2048, 2048, device="cuda")
for _ in range(20):
    big = (big @ big) * 0.01
end.record()
end.synchronize()
result.check(start.query() and end.query(), "events are done")
result.check(0.05 < start.elapsed_time(end) < 5000, f"elapsed {start.elapsed_time(end)} ms")

blocking = torch.cuda.Event(blocking=True)
blocking.record(first)
blocking.synchronize()
external = torch.cuda.ExternalStream(first.cuda_stream)
with torch.cuda.stream(external):
    result.tensor("external_stream", (data * 2)[:1000])
result.check(main.query() in (True, False), "query")
result.done()
