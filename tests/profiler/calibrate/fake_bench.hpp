#pragma once

// A bench that is a model with known constants. Times scatter by up to a hundredth, and every so many are half as long
// again, as when something else ran. Rates follow the clock, and the clock is another one in each block.

#include <random>
#include <string>
#include <vector>

#include "profiler/calibrate/bench.hpp"

namespace stowage::calibrate {

/// Rates at `layer_mhz`, the clock of the layer at full duty.
struct Truth {
    double layer_mhz = 1500;
    double gemm_tflop = 700;
    double fp8_tflop = 1300;
    double ramp_us = 2.5;
    double overhead_us = 1.5;
    double node_us = 0.6;
    double memory_gb = 4300;
    double strided_gb = 1400;
    double forward_tflop = 560;
    double backward_tflop = 500;
    types::AttentionLoss forward{280, 190};
    types::AttentionLoss backward{640, 130};
    double share_64 = 0.7;
    double share_160 = 0.95;
    double share_256 = 1.05;
    double link_gb = 55;
    double copy_fixed_us = 1.5;
    double to_host_kept = 0.92;
    double to_device_kept = 0.8;
    double pageable_gb = 8;
    double gemm_excess = 0;  ///< beside any copy
    double attention_excess = 0.004;
    double memory_excess = 0.01;
    double graph_launch_us = 1.7;
    double graph_node_us = 0.002;
    double graph_branch_us = 2.2;
    double instantiate_node_us = 5;
    std::int64_t graph_bytes = 112 << 10;
    std::int64_t node_bytes = 2400;
    std::int64_t branch_bytes = 100 << 10;
    std::int64_t bytes_there_already = 3 << 20;
};

class FakeBench : public Bench {
public:
    explicit FakeBench(Truth truth = {}, std::uint64_t seed = 1) : truth_(truth), numbers_(seed) {}

    Machine machine() override;
    Prepared prepare(std::span<const KernelCase> kernels) override;
    Block run(const KernelCase& kernel, double milliseconds) override;
    std::vector<MixRound> run_mix(std::span<const KernelCase> kernels, double duty, double seconds) override;
    BesideBlock run_beside(const KernelCase& kernel, double milliseconds, Beside beside) override;
    double copy(const CopyCase& copy) override;
    DuplexRound copy_both(Bytes size) override;
    SharedCopies copy_on_all(CopyDirection direction, Bytes size) override;
    double host_call(HostCall call) override;
    std::int64_t launch_queue_depth() override { return 1022; }
    double pinned_allocation_us_per_gib() override { return scattered(600'000); }
    double launch_graph(const GraphShape& shape) override;
    GraphStock stock_graphs(const GraphShape& shape, int graphs) override;
    double empty_kernels(int kernels, bool in_graph) override;
    double seconds() override { return seconds_ += 0.5; }

    /// What was asked, in order: "run linear forward ...", "beside 2 ...", "mix 0.75".
    [[nodiscard]] const std::vector<std::string>& asked() const { return asked_; }
    void refuse(const std::string& part_of_name) { refused_ = part_of_name; }
    void set_devices(int devices) { devices_ = devices; }
    void hide_clocks() { shows_clocks_ = false; }
    void name_device(const std::string& name) { device_ = name; }
    /// Microseconds of host_call: the call's number and one.
    static double host_call_us(HostCall call) { return 1.0 + static_cast<double>(index(call)); }

private:
    double scattered(double value);
    [[nodiscard]] double exact_us(const KernelCase& kernel, double clock) const;
    [[nodiscard]] State state(double clock) const { return {shows_clocks_ ? clock : 0, shows_clocks_ ? 690.0 : 0}; }

    Truth truth_;
    std::mt19937_64 numbers_;
    std::vector<std::string> asked_;
    std::string refused_;
    std::string device_ = "NVIDIA H200";
    int devices_ = 1;
    bool shows_clocks_ = true;
    bool first_stock_ = true;
    int drawn_ = 0;
    double seconds_ = 0;
};

}  // namespace stowage::calibrate
