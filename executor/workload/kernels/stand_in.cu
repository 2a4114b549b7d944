#include "executor/workload/kernels/stand_in.hpp"

#include <algorithm>

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/random.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 768;
constexpr int kWarps = kThreads / kWarp;
constexpr int kDepth = 4;                        // vectors of a lane under way
constexpr std::int64_t kChunk = kWarp * kDepth;  // vectors of a piece: 2 KiB
constexpr std::int64_t kMostFolded = 16;         // pieces of one side for one of the other
constexpr int kBetweenLooks = 4;                 // pieces between two looks at the clock: reading it takes a while

/// Buffers one behind the other, each from a new piece on.
struct Side {
    uint4* buffers[kMostStandInBuffers];
    std::int64_t vectors[kMostStandInBuffers];
    std::int64_t first[kMostStandInBuffers];  // pieces in front of it
    std::int64_t chunks = 0;
    int count = 0;
};

struct Parameters {
    Side reads;
    Side writes;
    const uint4* rest = nullptr;
    std::int64_t rest_chunks = 0;
    std::int64_t rest_first = 0;  // pieces, as the two around it
    std::int64_t rest_ring = 1;
    std::uint64_t nanoseconds = 0;
    bool adds = false;
    StandInScratch* scratch = nullptr;
    LoadKey key;
};

__device__ __forceinline__ std::uint64_t now() {
    std::uint64_t time = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

/// A bijection of words.
__device__ __forceinline__ unsigned scramble(unsigned word) {
    word = (word ^ (word >> 16)) * 0x7feb352dU;
    return word ^ (word >> 15);
}

__device__ __forceinline__ unsigned fold(const uint4& vector) {
    return scramble(vector.x + 3 * vector.y + 5 * vector.z + 7 * vector.w);
}

__device__ __forceinline__ unsigned warp_sum_of_words(unsigned value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
}

/// Where a piece begins, and how much of its buffer is left there.
struct Place {
    uint4* vectors;
    std::int64_t left;
};

__device__ __forceinline__ Place place_of(const Side& side, std::int64_t chunk) {
    int buffer = 0;
    while (buffer + 1 < side.count && chunk >= side.first[buffer + 1]) ++buffer;
    const std::int64_t begin = (chunk - side.first[buffer]) * kChunk;
    return {side.buffers[buffer] + begin, side.vectors[buffer] - begin};
}

/// One product of 16 x 16 and 16 x 8 after the other, four chains side by side.
class TensorCores {
public:
    __device__ void work() {
#pragma unroll
        for (int round = 0; round < 4; ++round)
#pragma unroll
            for (auto& sums : sums_)
                asm volatile(
                    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                    "{%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                    : "r"(kOnes + threadIdx.x), "r"(kOnes), "r"(kOnes), "r"(kOnes + 7 * threadIdx.x), "r"(kSmall),
                      "r"(kSmall));
    }

private:
    static constexpr unsigned kOnes = 0x3f803f80U;   // 1 and 1, the lower one a little more by thread
    static constexpr unsigned kSmall = 0x2b80ab80U;  // 2^-40 and its negative: sums stay finite
    float sums_[4][4] = {};
};

/// Does nothing, a moment long.
class Idle {
public:
    __device__ void work() { __nanosleep(64); }
};

/// When a warp's pieces are due.
template <class Between>
class Pace {
public:
    __device__ Pace(std::uint64_t start, std::uint64_t length, std::int64_t pieces)
        : start_(start),
          end_(start + length),
          step_(pieces > 0 ? static_cast<double>(length) / static_cast<double>(pieces) : 0.0) {}

    __device__ void next() {
        if (piece_ % kBetweenLooks == 0) wait(start_ + static_cast<std::uint64_t>(step_ * static_cast<double>(piece_)));
        ++piece_;
    }
    /// The same; whether the length is not over.
    __device__ bool next_in_time() {
        next();
        return piece_ % kBetweenLooks != 1 || last_look_ <= end_;
    }
    __device__ void finish() { wait(end_); }

private:
    __device__ void wait(std::uint64_t due) {
        while (look() < due) between_.work();
    }
    /// The same for all lanes, since they multiply together.
    __device__ std::uint64_t look() {
        last_look_ = __shfl_sync(kAllLanes, static_cast<unsigned long long>(now()), 0);
        return last_look_;
    }
    std::uint64_t start_;
    std::uint64_t end_;
    double step_;
    std::int64_t piece_ = 0;
    std::uint64_t last_look_ = 0;
    Between between_;
};

struct Piece {
    uint4 vectors[kDepth];
};

__device__ __forceinline__ void add_read(const Place& from, int lane, unsigned salt, Piece& sums) {
    uint4 read[kDepth];
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
        const std::int64_t place = i * kWarp + lane;
        read[i] = place < from.left ? __ldcs(from.vectors + place) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
        sums.vectors[i].x += scramble(read[i].x + salt);
        sums.vectors[i].y += scramble(read[i].y + salt);
        sums.vectors[i].z += scramble(read[i].z + salt);
        sums.vectors[i].w += scramble(read[i].w + salt);
    }
}

__device__ __forceinline__ unsigned fold(const Piece& piece) {
    unsigned folded = 0;
#pragma unroll
    for (int i = 0; i < kDepth; ++i) folded += fold(piece.vectors[i]) * (2U * i + 1U);
    return folded;
}

__device__ __forceinline__ void write(const Place& to, int lane, std::int64_t chunk, unsigned total, bool adds,
                                      const Piece& sums) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
        const std::int64_t place = i * kWarp + lane;
        if (place >= to.left) continue;
        const unsigned salt = total + static_cast<unsigned>(chunk * kChunk + place) * 0x9e3779b9U;
        const uint4& sum = sums.vectors[i];
        uint4 value = make_uint4(scramble(sum.x ^ salt), scramble(sum.y ^ (salt + 1)), scramble(sum.z ^ (salt + 2)),
                                 scramble(sum.w ^ (salt + 3)));
        if (adds) {
            const uint4 before = to.vectors[place];
            value = make_uint4(before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w);
        }
        to.vectors[place] = value;
    }
}

/// How the pieces of both sides meet: in lanes, each of which reads some and writes some.
struct Lanes {
    std::int64_t count;
    std::int64_t reads;   // of a lane, at most
    std::int64_t writes;  // the same
    bool reads_again;     // few pieces are read, by many lanes
};

__device__ __forceinline__ Lanes lanes_of(std::int64_t reads, std::int64_t writes) {
    if (reads == 0) return {writes, 0, 1, false};
    if (writes > kMostFolded * reads) return {writes, 1, 1, true};
    const std::int64_t count = reads < writes ? reads : writes;
    return {count, (reads + count - 1) / count, (writes + count - 1) / count, false};
}

__device__ __forceinline__ std::int64_t own(std::int64_t pieces, std::int64_t warp, std::int64_t warps) {
    return warp < pieces ? (pieces - 1 - warp) / warps + 1 : 0;
}

struct Warp {
    std::int64_t number;
    std::int64_t count;
    int lane;
};

template <class Between>
__device__ void move_lanes(const Parameters& work, const Lanes& lanes, const Warp& warp, Pace<Between>& pace) {
    const std::uint64_t key =
        lanes.reads == 0 ? stream_key(work.key.seed, *work.key.step, work.key.microbatch) : std::uint64_t{0};
    for (std::int64_t lane = warp.number; lane < lanes.count; lane += warp.count) {
        Piece sums{};
        for (std::int64_t turn = 0; turn < lanes.reads; ++turn) {
            const std::int64_t chunk = lanes.reads_again ? lane % work.reads.chunks : lane + turn * lanes.count;
            if (chunk >= work.reads.chunks) break;
            pace.next();
            add_read(place_of(work.reads, chunk), warp.lane, static_cast<unsigned>(turn), sums);
        }
        const unsigned total = warp_sum_of_words(fold(sums)) + static_cast<unsigned>(key ^ (key >> 32));
        for (std::int64_t turn = 0; turn < lanes.writes; ++turn) {
            const std::int64_t chunk = lane + turn * lanes.count;
            if (chunk >= work.writes.chunks) break;
            pace.next();
            write(place_of(work.writes, chunk), warp.lane, chunk, total, work.adds, sums);
        }
    }
}

/// The last block writes, of the sum over all.
template <class Between>
__device__ void move_to_sum(const Parameters& work, const Warp& warp, Pace<Between>& pace) {
    unsigned long long sum = 0;
    for (std::int64_t chunk = warp.number; chunk < work.reads.chunks; chunk += warp.count) {
        pace.next();
        Piece sums{};
        add_read(place_of(work.reads, chunk), warp.lane, static_cast<unsigned>(chunk), sums);
        sum += static_cast<unsigned long long>(fold(sums)) * (2ULL * static_cast<unsigned>(warp.lane) + 1ULL);
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
    if (warp.lane == 0) atomicAdd(&work.scratch->sum, sum);  // of integers: any order gives the same
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&work.scratch->blocks, 1U) + 1U == gridDim.x;
    __syncthreads();
    if (!last) return;
    __threadfence();
    const unsigned long long whole = *static_cast<volatile unsigned long long*>(&work.scratch->sum);
    const Piece nothing{};
    for (std::int64_t chunk = threadIdx.x / kWarp; chunk < work.writes.chunks; chunk += kWarps)
        write(place_of(work.writes, chunk), warp.lane, chunk, static_cast<unsigned>(whole ^ (whole >> 32)), work.adds,
              nothing);
    __syncthreads();
    if (threadIdx.x == 0) *work.scratch = {};
}

/// What is read for the sake of the traffic; a result that cannot be keeps the reads.
template <class Between>
__device__ void move_rest(const Parameters& work, const Warp& warp, Pace<Between>& pace) {
    unsigned kept = 0;
    for (std::int64_t chunk = warp.number; chunk < work.rest_chunks; chunk += warp.count) {
        if (!pace.next_in_time()) break;
        const uint4* const from = work.rest + (work.rest_first + chunk) % work.rest_ring * kChunk;
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            const uint4 read = __ldcs(from + i * kWarp + warp.lane);
            kept |= read.x | read.y | read.z | read.w;
        }
    }
    if (kept != 0) work.scratch->blocks = 0;  // the ring holds zeros
}

template <class Between>
__global__ void __launch_bounds__(kThreads) stand_in_kernel(const __grid_constant__ Parameters work) {
    const std::uint64_t start = now();
    const Warp warp{static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp,
                    static_cast<std::int64_t>(gridDim.x) * kWarps, static_cast<int>(threadIdx.x) % kWarp};
    const bool to_sum = work.reads.chunks > kMostFolded * work.writes.chunks;
    const Lanes lanes = lanes_of(work.reads.chunks, work.writes.chunks);
    const std::int64_t operands = to_sum ? own(work.reads.chunks, warp.number, warp.count)
                                         : own(lanes.count, warp.number, warp.count) * (lanes.reads + lanes.writes);
    Pace<Between> pace(start, work.nanoseconds, operands + own(work.rest_chunks, warp.number, warp.count));
    if (to_sum)
        move_to_sum(work, warp, pace);
    else
        move_lanes(work, lanes, warp, pace);
    move_rest(work, warp, pace);
    pace.finish();
}

Side side_of(std::span<const StandInBuffer> buffers) {
    Side side{};
    for (const StandInBuffer& buffer : buffers) {
        side.buffers[side.count] = static_cast<uint4*>(buffer.buffer);
        side.vectors[side.count] = buffer.vectors;
        side.first[side.count] = side.chunks;
        side.chunks += (buffer.vectors + kChunk - 1) / kChunk;
        ++side.count;
    }
    return side;
}

}  // namespace

void stand_in(const StandIn& work, const LoadKey& key, int multiprocessors, cudaStream_t stream) {
    Parameters parameters;
    parameters.reads = side_of(work.reads);
    parameters.writes = side_of(work.writes);
    parameters.rest = static_cast<const uint4*>(work.rest.buffer);
    parameters.rest_chunks = work.rest.vectors / kChunk;
    parameters.rest_ring = std::max<std::int64_t>(work.rest_ring / kChunk, 1);
    parameters.rest_first = work.rest_first / kChunk;
    parameters.nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(work.nanoseconds, 0));
    parameters.adds = work.adds;
    parameters.scratch = work.scratch;
    parameters.key = key;
    const auto blocks = static_cast<unsigned>(multiprocessors);
    if (work.tensor_cores)
        stand_in_kernel<TensorCores><<<blocks, kThreads, 0, stream>>>(parameters);
    else
        stand_in_kernel<Idle><<<blocks, kThreads, 0, stream>>>(parameters);
}

void load_stand_in_kernels() { load_each(stand_in_kernel<TensorCores>, stand_in_kernel<Idle>); }

}  // namespace stowage::executor::kernels
