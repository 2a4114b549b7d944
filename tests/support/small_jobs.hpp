#pragma once

// Jobs small enough to look at every choice: a few layers, ranks and microbatches.

#include <cstdint>
#include <random>

#include "planner/search/job.hpp"
#include "tests/support/synthetic_stage.hpp"

namespace stowage::tests {

/// What a small job is made of. Copies run at `copy_gb_per_s` either way after 1 us, one direction keeps 0.9 of it
/// beside the other, and kernels lose 4 % to each.
struct SmallJob {
    std::int64_t layers_per_stage = 2;
    std::int64_t stages = 1;
    std::int64_t microbatches = 2;
    double copy_gb_per_s = 50;
    double fixed_fraction = 0;  ///< 0: left to the planner
    bool experts = false;       ///< transformer jobs only
    std::int64_t hidden = 1024;
    std::int64_t sequence = 2048;
    std::int64_t delta_bytes = 0;
    types::Nanoseconds kernel_launch{0};
    SyntheticLayer layer;  ///< synthetic jobs only
};

/// A machine of eight GPUs with these copy engines and no limit that matters.
types::Node small_node(const SmallJob& job);

/// Layers of Megatron on Transformer Engine; modules and fraction are left to the planner.
search::Job transformer_job(const SmallJob& job);

/// Synthetic layers with two modules, core_attn and attn_proj.
search::Job synthetic_job(const SmallJob& job);

/// Shapes and rates from `random`, for either kind of job.
SmallJob random_small_job(std::mt19937_64& random);

/// The same job with every tensor of its layers in half the bytes where its type allows it; kernels take the time that
/// they took.
search::Job with_half_the_bytes(const search::Job& job);

}  // namespace stowage::tests
