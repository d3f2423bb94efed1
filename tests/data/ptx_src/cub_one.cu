// One algorithm of CUB for one type: -DCORPUS_ALGORITHM=0..11 -DCORPUS_TYPE=int|double (ci/ptx-corpus).
#include <cub/cub.cuh>
#include <cuda/functional>
#include <cuda/std/functional>
#ifndef CORPUS_TYPE
#define CORPUS_TYPE int
#endif
#ifndef CORPUS_ALGORITHM
#define CORPUS_ALGORITHM 0
#endif
extern "C" void host(CORPUS_TYPE *in, CORPUS_TYPE *out, void *temp, size_t bytes, int n, int *other, bool *flags)
{
#if CORPUS_ALGORITHM == 0
    cub::DeviceReduce::Sum(temp, bytes, in, out, n);
#elif CORPUS_ALGORITHM == 1
    cub::DeviceScan::InclusiveSum(temp, bytes, in, out, n);
#elif CORPUS_ALGORITHM == 2
    cub::DeviceRadixSort::SortKeys(temp, bytes, in, out, n);
#elif CORPUS_ALGORITHM == 3
    cub::DeviceSelect::Flagged(temp, bytes, in, flags, out, other, n);
#elif CORPUS_ALGORITHM == 4
    cub::DeviceHistogram::HistogramEven(temp, bytes, in, other, 17, CORPUS_TYPE(0), CORPUS_TYPE(16), n);
#elif CORPUS_ALGORITHM == 5
    cub::DeviceReduce::ReduceByKey(temp, bytes, other, other, in, out, other, cuda::maximum<>(), n);
#elif CORPUS_ALGORITHM == 6
    cub::DeviceRunLengthEncode::Encode(temp, bytes, in, out, other, other, n);
#elif CORPUS_ALGORITHM == 7
    cub::DeviceSegmentedReduce::Min(temp, bytes, in, out, n, other, other + 1);
#elif CORPUS_ALGORITHM == 8
    cub::DeviceMergeSort::SortPairs(temp, bytes, in, other, n, cuda::std::less<>());
#elif CORPUS_ALGORITHM == 9
    cub::DevicePartition::Flagged(temp, bytes, in, flags, out, other, n);
#elif CORPUS_ALGORITHM == 10
    cub::DeviceSegmentedSort::SortKeys(temp, bytes, in, out, n, 4, other, other + 1);
#else
    cub::DeviceAdjacentDifference::SubtractLeftCopy(temp, bytes, in, out, n);
#endif
}
