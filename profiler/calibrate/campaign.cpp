#include "profiler/calibrate/campaign.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace stowage::calibrate {
namespace {

using types::operator""_MiB;

constexpr int kGraphs = 600;

/// The order of each round, the same on every machine: std::shuffle is not.
class Orders {
public:
    explicit Orders(std::uint64_t seed) : numbers_(seed) {}
    std::vector<std::size_t> next(std::size_t count) {
        std::vector<std::size_t> order(count);
        for (std::size_t i = 0; i < count; ++i) order[i] = i;
        for (std::size_t left = count; left > 1; --left) std::swap(order[left - 1], order[numbers_() % left]);
        return order;
    }

private:
    std::mt19937_64 numbers_;
};

class Campaign {
public:
    Campaign(Bench& bench, const CampaignOptions& options, const std::function<void(const std::string&)>& progress)
        : bench_(bench), options_(options), progress_(progress), orders_(options.seed) {}

    Measurements run() {
        phase("starting the libraries, choosing algorithms", [&] { prepare(); });
        phase("graphs: device memory, launches", [&] { measure_graphs(); });
        phase("host calls", [&] { measure_host(); });
        phase("copies", [&] { measure_copies(); });
        phase("a layer at full duty", [&] { measure_mix(1, options_.warm_up_seconds, options_.mix_seconds); });
        phase("kernels by shape", [&] { measure_kernels(); });
        phase("kernels beside copies", [&] { measure_beside(); });
        phase("a layer at partial duty", [&] {
            for (const double duty : mix_duties())
                if (duty < 1) measure_mix(duty, options_.settle_seconds, options_.idle_mix_seconds);
        });
        return std::move(result_);
    }

private:
    template <class Work>
    void phase(const std::string& name, const Work& work) {
        progress_(name);
        const double start = bench_.seconds();
        work();
        result_.phases.push_back({name, bench_.seconds() - start});
    }

    void prepare() {
        result_.machine = bench_.machine();
        if (!result_.machine.monitor_absence.empty())
            result_.notes.push_back("clocks and power are not known: " + result_.machine.monitor_absence);
        std::vector<KernelCase> all = fitted_kernels();
        for (const KernelCase& kernel : mix_kernels()) all.push_back(kernel);
        for (const BesideCase& beside : beside_kernels()) all.push_back(beside.kernel);
        Prepared prepared = bench_.prepare(all);
        result_.memory = prepared.memory;
        refused_ = std::move(prepared.refused);
        for (const Refusal& refusal : refused_)
            result_.notes.push_back("not measured: " + name_of(refusal.kernel) + ": " + refusal.reason);
    }

    [[nodiscard]] bool is_refused(const KernelCase& kernel) const {
        return std::ranges::find(refused_, kernel, &Refusal::kernel) != refused_.end();
    }
    [[nodiscard]] std::vector<KernelCase> possible(std::vector<KernelCase> kernels) const {
        std::erase_if(kernels, [&](const KernelCase& kernel) { return is_refused(kernel); });
        return kernels;
    }

    /// Graphs that are kept first: memory of graphs that are gone would be used again.
    void measure_graphs() {
        for (const GraphShape shape :
             {GraphShape{5, 1}, GraphShape{50, 1}, GraphShape{100, 1}, GraphShape{50, 2}, GraphShape{5, 3}})
            result_.graph_stocks.push_back(bench_.stock_graphs(shape, kGraphs));
        for (const GraphShape shape : {GraphShape{1, 1}, GraphShape{24, 1}, GraphShape{1000, 1}, GraphShape{3000, 1},
                                       GraphShape{24, 2}, GraphShape{24, 5}})
            result_.graph_launches.push_back({shape, {}});
        for (const bool in_graph : {false, true})
            for (const int kernels : {50, 400}) result_.empty_kernels.push_back({kernels, in_graph, {}});
        for (int round = 0; round < options_.host_rounds; ++round) {
            for (GraphLaunches& launches : result_.graph_launches)
                launches.launch_us.push_back(bench_.launch_graph(launches.shape));
            for (EmptyKernels& run : result_.empty_kernels)
                run.total_us.push_back(bench_.empty_kernels(run.kernels, run.in_graph));
        }
    }

    void measure_host() {
        for (int round = 0; round < options_.host_rounds; ++round)
            for (const std::size_t call : orders_.next(kHostCalls))
                result_.host_calls.at(call).push_back(bench_.host_call(static_cast<HostCall>(call)));
        result_.launch_queue_depth = bench_.launch_queue_depth();
        for (int round = 0; round < 3; ++round)
            result_.pinned_allocation_us_per_gib.push_back(bench_.pinned_allocation_us_per_gib());
    }

    void add_copies() {
        for (const bool pinned : {true, false})
            for (const CopyDirection direction : {CopyDirection::device_to_host, CopyDirection::host_to_device})
                for (const Bytes size : copy_sizes())
                    if (pinned || size <= 256_MiB) result_.copies.push_back({{direction, size, pinned}, {}});
        for (const Bytes size : copy_sizes()) result_.duplex.push_back({size, {}});
    }

    void measure_copies() {
        add_copies();
        const int pageable_rounds = std::min(2, options_.copy_rounds);
        for (int round = 0; round < options_.copy_rounds; ++round) {
            for (const std::size_t i : orders_.next(result_.copies.size())) {
                CopyTimes& times = result_.copies[i];
                if (times.copy.pinned || round < pageable_rounds) times.copy_us.push_back(bench_.copy(times.copy));
            }
            for (const std::size_t i : orders_.next(result_.duplex.size()))
                result_.duplex[i].rounds.push_back(bench_.copy_both(result_.duplex[i].size));
        }
        if (result_.machine.devices < 2) return;
        for (const CopyDirection direction : {CopyDirection::device_to_host, CopyDirection::host_to_device})
            for (const Bytes size : {1_MiB, 64_MiB})
                result_.shared_copies.push_back(bench_.copy_on_all(direction, size));
    }

    /// The rounds of the first seconds settle clocks and power and are thrown away.
    void measure_mix(double duty, double settle, double seconds) {
        const std::vector<KernelCase> kernels = possible(mix_kernels());
        bench_.run_mix(kernels, duty, settle);
        result_.mixes.push_back({duty, kernels, bench_.run_mix(kernels, duty, seconds)});
    }

    void measure_kernels() {
        for (const KernelCase& kernel : possible(fitted_kernels())) result_.kernels.push_back({kernel, {}});
        for (int round = 0; round < options_.kernel_rounds; ++round)
            for (const std::size_t i : orders_.next(result_.kernels.size())) {
                KernelTimes& times = result_.kernels[i];
                times.blocks.push_back(bench_.run(times.kernel, options_.kernel_block_ms));
            }
    }

    void measure_beside() {
        for (const BesideCase& beside : beside_kernels()) {
            if (is_refused(beside.kernel)) continue;
            BesideTimes times{beside.kernel_class, beside.kernel, {}};
            bench_.run_beside(beside.kernel, options_.beside_block_ms, Beside::both);  // brings it to its own power
            for (int round = 0; round < options_.beside_rounds; ++round) {
                BesideRound blocks;
                for (const std::size_t i : orders_.next(kBesides))
                    blocks.blocks.at(i) =
                        bench_.run_beside(beside.kernel, options_.beside_block_ms, static_cast<Beside>(i));
                times.rounds.push_back(blocks);
            }
            result_.beside_copies.push_back(std::move(times));
        }
    }

    Bench& bench_;
    const CampaignOptions& options_;
    const std::function<void(const std::string&)>& progress_;
    Orders orders_;
    std::vector<Refusal> refused_;
    Measurements result_;
};

}  // namespace

Measurements run_campaign(Bench& bench, const CampaignOptions& options,
                          const std::function<void(const std::string&)>& progress) {
    return Campaign(bench, options, progress).run();
}

}  // namespace stowage::calibrate
