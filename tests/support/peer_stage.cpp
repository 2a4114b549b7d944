#include "tests/support/peer_stage.hpp"

#include <cmath>
#include <numeric>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/support/peer_stage_layers.hpp"
#include "tests/support/peer_stage_times.hpp"

namespace stowage::testing {
namespace {

using layers::StateBuffer;
using types::Bytes;
using types::Module;
using types::operator""_MiB;

/// Parameters, and what else lives through the run. Gradients: peer_stage_run.hpp.
std::vector<StateBuffer> peer_states() {
    std::vector<StateBuffer> states;
    for (std::int64_t layer = 0; layer < peer::kLayers; ++layer)
        for (const Bytes bytes : {Bytes{8192}, 96_MiB, 32_MiB, Bytes{8192}, 224_MiB, 112_MiB})
            states.push_back(
                {"layer " + std::to_string(layer), bytes, StateBuffer::What::weights, StateBuffer::When::setup});
    for (const char* name : {"input", "input gradient", "cublas workspace", "cublas workspace of autograd"})
        states.push_back({name, 32_MiB, StateBuffer::What::workspace, StateBuffer::When::setup});
    return states;
}

}  // namespace

double PeerRow::mean_step_ms() const {
    return std::accumulate(step_ms.begin(), step_ms.end(), 0.0) / static_cast<double>(step_ms.size());
}

std::vector<PeerRow> peer_rows() {
    using enum Module;
    return {
        {"nothing", {}, {366.4, 366.0}, Bytes{14164698112}, Bytes{14988345344}, 0_MiB},
        {"core_attn", {core_attn}, {371.4, 378.3}, Bytes{13460055552}, Bytes{16968056832}, 896_MiB},
        {"core_attn attn_proj",
         {core_attn, attn_proj},
         {373.1, 374.0},
         Bytes{13225174528},
         Bytes{17102274560},
         1344_MiB},
        {"attn_norm mlp_norm", {attn_norm, mlp_norm}, {367.6, 368.5}, Bytes{13728491008}, Bytes{15726542848}, 448_MiB},
        {"qkv_linear core_attn attn_proj",
         {qkv_linear, core_attn, attn_proj},
         {415.8},
         Bytes{12990293504},
         std::nullopt,
         2240_MiB},
        {"all five",
         {attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm},
         {451.9, 465.3},
         Bytes{12554085888},
         Bytes{17538482176},
         2688_MiB},
    };
}

layers::StageLayers peer_stage(types::ModuleSet offloaded, double gemm_time) {
    const bool moved = offloaded.contains(Module::core_attn);
    layers::StageLayers stage;
    stage.scripts = {peer::layer_script(true, moved, gemm_time), peer::layer_script(false, moved, gemm_time),
                     peer::layer_script(false, false, gemm_time), peer::loss_script()};
    layers::ChunkLayers chunk;
    chunk.order.assign(peer::kLayers, 1);
    chunk.order.front() = 0;
    chunk.order.back() = 2;
    chunk.order.push_back(3);
    for (std::int64_t layer = 0; layer < peer::kLayers; ++layer) chunk.layer_numbers.push_back(layer);
    chunk.layer_numbers.push_back(-1);
    stage.chunks.push_back(std::move(chunk));
    layers::ScriptBuilder optimizer(layers::ScriptKind::optimizer, "no optimizer");
    stage.optimizer = optimizer.build();
    stage.states = peer_states();
    stage.boundary = 32_MiB;
    return stage;
}

double gemm_time_at(double busy_share) { return std::cbrt(busy_share); }

types::Hardware peer_hardware() {
    types::Hardware hardware{
        reader::read_hardware(std::string(STOWAGE_SOURCE_DIR) + "/scenarios/hardware/h200-8gpu.yaml"), 1};
    types::HostCosts& host = hardware.node.host;
    // Medians over six modes (docs/measurements/2026-11-29-h200-peer-memory.json): a microbatch of 132 + 302 launches
    // without the manager; with it, one way, 104 us a group and 212 us a tensor: hooks, stream contexts, copies. A
    // group makes four calls on events on average.
    host.framework_forward = types::Nanoseconds{5'110'000 / 132} - host.kernel_launch;
    host.framework_backward = types::Nanoseconds{7'910'000 / 302} - host.kernel_launch;
    host.gemm_call = host.attention_call = {};  // of stowage's own layers
    // When its allocations come between copies was not looked at: docs/measurements/2026-11-29-peer-prediction.md.
    hardware.node.copy.time_slice = {};
    host.copy_launch = types::Nanoseconds{212'000};
    host.event_call = types::Nanoseconds{104'000 / 4};
    return hardware;
}

}  // namespace stowage::testing
