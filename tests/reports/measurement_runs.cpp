#include "tests/reports/measurement_runs.hpp"

namespace stowage::reports {
namespace {

using types::Bytes;
using types::Nanoseconds;

recording::Profile a_profile() {
    recording::Profile profile;
    profile.duration = Nanoseconds{400'000'001};
    profile.main_busy = Nanoseconds{390'000'002};
    profile.exposed_copy = Nanoseconds{1'500'003};
    profile.device_to_host = {Bytes{1'300'000'004}, Nanoseconds{24'000'005}, 54.5e9};
    profile.host_to_device = {Bytes{1'300'000'006}, Nanoseconds{25'000'007}, 0};
    profile.dropped_records = 8;
    profile.unmatched_records = 9;
    profile.labels = {{"fc1", "main", 10, 11, Nanoseconds{60'000'012}, Nanoseconds{66'000'013}},
                      {"offload \"x\"", "d2h", 14, 15, Nanoseconds{16}, Nanoseconds{0}}};
    return profile;
}

recording::Measurement a_measurement() {
    recording::Measurement measurement;
    measurement.scenario = "peer";
    measurement.implementation = "stowage";
    measurement.pipeline_rank = 1;
    measurement.policy = "megatron";
    measurement.allocator = "caching";
    measurement.graphs = "local attn mlp";
    measurement.machine = {"NVIDIA H200", "13.1", "13.0", "13.0.2", "9.14.0", 132, Bytes{150'000'000'017}};
    measurement.warmup_steps = 18;
    measurement.event_times = {Nanoseconds{366'000'019}, Nanoseconds{365'000'020}, Nanoseconds{367'000'021}};
    measurement.wall_times = {Nanoseconds{368'000'022}};
    measurement.launch_times = {Nanoseconds{1'000'023}, Nanoseconds{1'000'024}};
    measurement.samples = {{"before", 1980U, 3201U, 120.25, 40U, {}},
                           {"timed", std::nullopt, std::nullopt, std::nullopt, std::nullopt, {"power cap", "heat"}}};
    measurement.memory = {{"setup", Bytes{25}, Bytes{26}, Bytes{-27}, 28},
                          {"steady", Bytes{29}, Bytes{30}, Bytes{31}, 32}};
    measurement.steady_peak_allocated = Bytes{200};
    measurement.steady_peak_reserved = Bytes{400};
    measurement.pinned = Bytes{35};
    measurement.pinned_placement = "node 0";
    measurement.graphs_captured = 36;
    measurement.graph_nodes = 37;
    measurement.graph_launches = 38;
    measurement.losses = {10.5, 0.1, 11.25};
    measurement.digests = {{"losses", 0xffffffffffffffff}, {"layer 0 qkv", 0}, {"layer 0 qkv", 39}};
    measurement.run_digest = 0x0123456789abcdef;
    measurement.digested_steps = 40;
    measurement.allocator_answers = 41;
    measurement.profile = a_profile();
    return measurement;
}

}  // namespace

MeasuredRun a_measured_run() {
    MeasuredRun run;
    run.measurement = a_measurement();
    run.scenario.name = "peer";
    run.scenario.implementation = types::Implementation::stowage;
    run.choice.modules.insert(types::Module::core_attn);
    run.choice.fraction = 0.5;
    run.predicted = {
        Nanoseconds{365'000'000}, Nanoseconds{2'000'000}, Nanoseconds{363'000'000}, Bytes{210}, Bytes{380}, Bytes{35}};
    return run;
}

}  // namespace stowage::reports
