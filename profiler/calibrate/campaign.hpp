#pragma once

// What is measured, in which order and how often: everything but the measuring itself.
//
// The chip's rates follow its power, so what is compared is interleaved: every round runs each case once, in an order
// of its own, without pauses, after seconds of load. Blocks beside copies stand next to the same block without, and all
// blocks take the same time. Host calls and copies come first, while the chip is cool, since neither depends on it.
//
// Tested by: tests/profiler/calibrate/campaign_test.cpp, on a fake bench that writes down what it was asked.

#include <functional>
#include <string>
#include <vector>

#include "profiler/calibrate/bench.hpp"

namespace stowage::calibrate {

struct CampaignOptions {
    std::uint64_t seed = 1;  ///< of the orders
    int copy_rounds = 5;
    int host_rounds = 15;
    int kernel_rounds = 6;
    int beside_rounds = 24;
    double kernel_block_ms = 18;
    double beside_block_ms = 9;
    double warm_up_seconds = 3;
    double mix_seconds = 3;
    double idle_mix_seconds = 2;  ///< at partial duty, the settling before it not counted
    double settle_seconds = 1;
};

/// GEMMs and attention whose rates are fitted, apart from those of the mix.
std::vector<KernelCase> fitted_kernels();
/// A layer of 4096 tokens, width 4096, SwiGLU of 14336 and 32 heads of 128, forward and backward.
std::vector<KernelCase> mix_kernels();
/// Duty cycles at which the mix runs.
std::vector<double> mix_duties();
struct BesideCase {
    types::KernelClass kernel_class{};
    KernelCase kernel;
};
std::vector<BesideCase> beside_kernels();
/// 64 KiB to 1 GiB.
std::vector<Bytes> copy_sizes();

/// Throws: DeviceError. Cost with the default options: some 40 s, of which the bench's own preparation takes ten.
Measurements run_campaign(Bench& bench, const CampaignOptions& options,
                          const std::function<void(const std::string&)>& progress);

}  // namespace stowage::calibrate
