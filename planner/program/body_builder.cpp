#include "planner/program/body_builder.hpp"

#include <algorithm>

#include "planner/program/body_writer.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

void append(std::string& key, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) key.push_back(static_cast<char>(value >> (8 * i)));
}

void append(std::string& key, types::ModuleSet modules) {
    std::uint64_t bits = 0;
    for (int i = 0; i < types::kModuleCount; ++i)
        if (modules.contains(static_cast<types::Module>(i))) bits |= std::uint64_t{1} << i;
    append(key, bits, 2);
}

void append(std::string& key, const std::array<std::optional<ReloadTarget>, types::kModuleCount>& targets) {
    for (const auto& target : targets) {
        append(key, target ? 1 : 0, 1);
        if (!target) continue;
        append(key, target->script, 2);
        append(key, static_cast<std::uint64_t>(target->module), 1);
        append(key, target->scope, 1);
        append(key, target->empty ? 1 : 0, 1);
    }
}

void append(std::string& key, const std::vector<ReloadTarget>& targets) {
    append(key, targets.size(), 2);
    for (const ReloadTarget& target : targets) {
        append(key, target.script, 2);
        append(key, static_cast<std::uint64_t>(target.module), 1);
        append(key, target.scope, 1);
    }
}

types::ModuleSet modules_of(const std::array<std::optional<ReloadTarget>, types::kModuleCount>& targets) {
    types::ModuleSet modules;
    for (std::size_t i = 0; i < targets.size(); ++i)
        if (targets[i]) modules.insert(static_cast<types::Module>(i));
    return modules;
}

std::string with_modules(std::string name, std::string_view what, types::ModuleSet modules) {
    if (!modules.empty()) name += ", " + std::string(what) + " " + modules.joined();
    return name;
}

std::uint32_t slot_of(TransferKind kind) {
    const bool activation = kind == TransferKind::send_forward || kind == TransferKind::receive_forward;
    return static_cast<std::uint32_t>(activation ? layers::kInput : layers::kGradOutput);
}

/// The scope of a transfer's tensor; the next one is that of the input it releases.
Scope scope_of(std::size_t part) { return static_cast<Scope>(2 * part); }

}  // namespace

std::string body_key(std::size_t script, const ForwardDecisions& forward, const BackwardDecisions* backward) {
    std::string key;
    append(key, script, 2);
    append(key, forward.offloaded);
    append(key, forward.unmanaged);
    append(key, forward.delayed);
    append(key,
           (forward.input_held ? 1U : 0U) + (backward != nullptr ? 2U : 0U) + (forward.input_static ? 4U : 0U) +
               (forward.gradient_static ? 8U : 0U) + 16U * static_cast<std::uint64_t>(forward.side) +
               64U * static_cast<std::uint64_t>(forward.pass),
           1);
    if (backward == nullptr) {
        append(key, forward.joins);
        return key;
    }
    append(key, backward->frees_previous_gradient ? 1U : 0U, 1);
    append(key, backward->inline_read);
    append(key, backward->waits);
    append(key, backward->targets);
    for (const PlannedHook& hook : backward->planned) {
        append(key, static_cast<std::uint64_t>(hook.kind), 1);
        append(key, static_cast<std::uint64_t>(hook.module), 1);
        append(key, hook.joins);
        append(key, hook.reloads);
    }
    return key;
}

std::optional<std::size_t> plain_body_number(std::size_t script, const ForwardDecisions& forward,
                                             const BackwardDecisions* backward) {
    const auto decided = [](const ReloadTargets& targets) {
        return std::any_of(targets.begin(), targets.end(), [](const auto& target) { return target.has_value(); });
    };
    if (!forward.offloaded.empty() || !forward.unmanaged.empty() || !forward.delayed.empty()) return std::nullopt;
    if (backward == nullptr ? decided(forward.joins) : !backward->inline_read.empty()) return std::nullopt;
    if (backward != nullptr && (decided(backward->waits) || decided(backward->targets) || !backward->planned.empty()))
        return std::nullopt;
    std::size_t number = script;
    for (const bool flag : {forward.input_held, forward.input_static, forward.gradient_static, backward != nullptr,
                            backward != nullptr && backward->frees_previous_gradient})
        number = 2 * number + (flag ? 1 : 0);
    return (number << 4) + (static_cast<std::size_t>(forward.side) << 2) + static_cast<std::size_t>(forward.pass);
}

BodyBuilder::BodyBuilder(const layers::StageLayers& stage, const std::vector<FrameLayout>& layouts,
                         const types::OffloadChoice& choice, const Durations& durations, StepProgram& program)
    : stage_(stage),
      layouts_(layouts),
      chosen_(choice.modules),
      planned_(choice.free.has_value()),
      optimizer_layout_(stage.optimizer, types::OffloadChoice{}),
      durations_(durations),
      program_(program) {
    program_.pinned_keys.assign(1, 0);
    program_.labels.assign(1, "");
}

std::uint32_t BodyBuilder::work(Work work) {
    std::vector<Work>& works = program_.works;
    if (works.empty()) works.emplace_back();  // number 0: none
    const std::size_t hash = hash_of(work);
    const auto [first, last] = work_numbers_.equal_range(hash);
    for (auto known = first; known != last; ++known)
        if (works[known->second] == work) return known->second;
    const auto number = static_cast<std::uint32_t>(works.size());
    work_numbers_.emplace(hash, number);
    works.push_back(std::move(work));
    return number;
}

std::uint32_t BodyBuilder::label(std::string_view text) {
    const auto [entry, added] =
        label_numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(program_.labels.size()));
    if (added) program_.labels.emplace_back(text);
    return entry->second;
}

std::uint32_t BodyBuilder::pinned_key(const std::vector<std::int64_t>& shape, types::DataType type) {
    const auto number = static_cast<std::uint32_t>(program_.pinned_keys.size());
    const auto [entry, added] = pinned_numbers_.try_emplace(std::pair(shape, type), number);
    if (added) program_.pinned_keys.push_back(number);
    return entry->second;
}

BodyWriter BodyBuilder::writer_of(std::size_t script, Side side) {
    BodyWriter writer(*this, stage_.scripts[script], layouts_[script]);
    if (side != Side::all) writer.use_graphs(*graphs_of(script), plants_hooks(script));
    return writer;
}

void BodyBuilder::note(const BodyWriter& writer) {
    released_while_saved_ = released_while_saved_ || writer.released_while_saved();
    released_static_ = released_static_ || writer.released_static();
}

std::string BodyBuilder::forward_name(std::size_t script, const ForwardDecisions& decisions) const {
    constexpr std::string_view kPassNames[] = {" forward", " forward, discarding", " forward, again"};
    constexpr std::string_view kSideNames[] = {"", ", captured", ", around its graph"};
    std::string name = stage_.scripts[script].name + std::string(kPassNames[static_cast<std::size_t>(decisions.pass)]) +
                       std::string(kSideNames[static_cast<std::size_t>(decisions.side)]);
    return with_modules(std::move(name), "offloads", decisions.offloaded);
}

Body BodyBuilder::write_forward(std::size_t script, const ForwardDecisions& decisions,
                                std::vector<OperationRange>& exchanges) {
    BodyWriter writer = writer_of(script, decisions.side);
    writer.forward(decisions, false);
    note(writer);
    exchanges = writer.exchanges();
    return {forward_name(script, decisions), writer.take()};
}

std::array<Body, 2> BodyBuilder::forward_around_graph(std::size_t script, const ForwardDecisions& decisions) {
    BodyWriter writer = writer_of(script, decisions.side);
    writer.forward(decisions, false);
    note(writer);
    const std::string name = forward_name(script, decisions);
    std::vector<Operation> first = writer.take();
    const auto launched = first.begin() + static_cast<std::ptrdiff_t>(writer.launched_at());
    std::vector<Operation> rest(launched, first.end());
    first.erase(launched, first.end());
    return {Body{name + ", up to the graph", std::move(first)}, Body{name + ", behind the graph", std::move(rest)}};
}

Body BodyBuilder::delayed_commits(std::size_t script, const ForwardDecisions& decisions) {
    BodyWriter writer = writer_of(script, decisions.side);
    ForwardDecisions before = decisions;
    before.delayed = {};
    before.offloaded = {};
    for (const types::Module module : decisions.offloaded.list())
        if (!decisions.delayed.contains(module)) before.offloaded.insert(module);
    before.not_committed = decisions.delayed;
    writer.forward(before, true);
    writer.delayed_commits(decisions);
    note(writer);
    return {with_modules(stage_.scripts[script].name + " delayed commits", "offloads", decisions.offloaded),
            writer.take()};
}

GraphSurface BodyBuilder::graph_surface(std::size_t script) {
    BodyWriter writer = writer_of(script, Side::outside);
    ForwardDecisions decisions;
    decisions.side = Side::outside;
    writer.forward(decisions, true);
    writer.backward(decisions, {});
    return writer.surface();
}

const layers::LayerGraphs* BodyBuilder::graphs_of(std::size_t script) const {
    const auto& graphs = stage_.graphs.layers;
    return script < graphs.size() && graphs[script] ? &*graphs[script] : nullptr;
}

bool BodyBuilder::plants_hooks(std::size_t script) const {
    const layers::LayerGraphs* graphs = graphs_of(script);
    if (graphs == nullptr) return false;
    if (planned()) return !layout(script).groups().empty();  // what it puts into a graph it also joins there
    if (!graphs->hooks) return false;
    using types::Module;
    return chosen_.contains(Module::qkv_linear) || chosen_.contains(Module::core_attn) ||
           chosen_.contains(Module::attn_proj);
}

bool BodyBuilder::captures_output(std::size_t script) const {
    const layers::LayerGraphs* graphs = graphs_of(script);
    return graphs != nullptr && graphs->forward.end == stage_.scripts[script].forward.size();
}

bool BodyBuilder::captures_gradient(std::size_t script) const {
    const layers::LayerGraphs* graphs = graphs_of(script);
    return graphs != nullptr && graphs->backward.end == stage_.scripts[script].backward.size();
}

Body BodyBuilder::write_backward(std::size_t script, const ForwardDecisions& forward_decisions,
                                 const BackwardDecisions& decisions, std::vector<OperationRange>& exchanges) {
    BodyWriter writer = writer_of(script, forward_decisions.side);
    writer.forward(forward_decisions, true);
    writer.backward(forward_decisions, decisions);
    constexpr std::string_view kSideNames[] = {" backward", " backward, captured", " backward, around its graph"};
    std::string name = with_modules(
        stage_.scripts[script].name + std::string(kSideNames[static_cast<std::size_t>(forward_decisions.side)]),
        "waits for", modules_of(decisions.waits));
    exchanges = writer.exchanges();
    return {with_modules(std::move(name), "reads inline", decisions.inline_read), writer.take()};
}

Body BodyBuilder::forward(std::size_t script, const ForwardDecisions& decisions) {
    std::vector<OperationRange> exchanges;
    return write_forward(script, decisions, exchanges);
}

Body BodyBuilder::backward(std::size_t script, const ForwardDecisions& forward_decisions,
                           const BackwardDecisions& decisions) {
    std::vector<OperationRange> exchanges;
    return write_backward(script, forward_decisions, decisions, exchanges);
}

BodySegments BodyBuilder::forward_segments(std::size_t script, const ForwardDecisions& decisions) {
    std::vector<OperationRange> exchanges;
    const Body body = write_forward(script, decisions, exchanges);
    return split_forward(body, exchanges, layouts_[script].exchange_event(0));
}

BodySegments BodyBuilder::backward_segments(std::size_t script, const ForwardDecisions& forward_decisions,
                                            const BackwardDecisions& decisions) {
    std::vector<OperationRange> exchanges;
    const Body body = write_backward(script, forward_decisions, decisions, exchanges);
    BodySegments segments = split_backward(body, exchanges, layouts_[script].exchange_event(0));
    if (stage_.delayed_weight_gradients) delay_weight_gradients(segments);
    return segments;
}

bool BodyBuilder::releases_input(std::size_t script, const ForwardDecisions& decisions) {
    const layers::LayerScript& layer = stage_.scripts[script];
    if (planned_) {  // a tensor that a kept group needs is not emptied: only counting says which
        BodyWriter writer = writer_of(script, decisions.side);
        writer.forward(decisions, true);
        return writer.emptied(layers::kInput);
    }
    for (const layers::Step& step : layer.forward) {
        if (step.kind != layers::StepKind::commit || !decisions.offloaded.contains(step.module)) continue;
        for (const layers::Slot slot : layer.releases[step.detail])
            if (slot == layers::kInput && layouts_[script].releasable(layer, slot, step.module)) return true;
    }
    return false;
}

Body BodyBuilder::optimizer(bool first) {
    BodyWriter writer(*this, stage_.optimizer, optimizer_layout_);
    free_states(When::within_steps, kNeighbourFrame, writer);
    for (std::size_t i = 0; first && i < stage_.states.size(); ++i)
        if (stage_.states[i].when == When::first_optimizer_step)
            writer.state(stage_.states[i], static_cast<std::uint32_t>(i), kNeighbourFrame);
    writer.plain_steps(stage_.optimizer.forward);
    for (std::size_t i = 0; i < stage_.states.size(); ++i)
        if (stage_.states[i].when == When::between_steps)
            writer.state(stage_.states[i], static_cast<std::uint32_t>(i), kNeighbourFrame);
    return {first ? "first optimizer step" : "optimizer step", writer.take()};
}

void BodyBuilder::free_states(When when, Scope scope, BodyWriter& writer) const {
    for (std::size_t i = 0; i < stage_.states.size(); ++i)
        if (stage_.states[i].when == when && !stage_.states[i].on_host())
            writer.free_state(stage_.states[i], static_cast<std::uint32_t>(i), scope);
}

Body BodyBuilder::setup() {
    BodyWriter writer(*this, stage_.optimizer, optimizer_layout_);
    const auto is_buffer = [](const layers::StateBuffer& state) {
        return state.what == layers::StateBuffer::What::weights || state.what == layers::StateBuffer::What::gradients;
    };
    bool constructed = false;
    for (std::size_t i = 0; i < stage_.states.size(); ++i) {
        const layers::StateBuffer& state = stage_.states[i];
        if (state.when != When::setup && state.when != When::construction) continue;
        if (!constructed && !is_buffer(state)) free_states(When::construction, kOwnFrame, writer);
        constructed = constructed || !is_buffer(state);
        writer.state(state, static_cast<std::uint32_t>(i), kOwnFrame);
    }
    if (!constructed) free_states(When::construction, kOwnFrame, writer);
    return {"setup", writer.take()};
}

Body BodyBuilder::bucket(const layers::LayerScript& script) {
    const FrameLayout layout(script, types::OffloadChoice{});
    BodyWriter writer(*this, script, layout);
    writer.plain_steps(script.forward);
    return {script.name, writer.take()};
}

Body BodyBuilder::await_buckets() {
    return {"await buckets",
            {{.kind = OperationKind::stream_wait, .stream = Stream::main, .other = Stream::gradient_communication}}};
}

Body BodyBuilder::begin_step(bool first) {
    BodyWriter writer(*this, stage_.optimizer, optimizer_layout_);
    if (!first) free_states(When::between_steps, kNeighbourFrame, writer);
    for (std::size_t i = 0; i < stage_.states.size(); ++i)
        if (stage_.states[i].when == When::within_steps)
            writer.state(stage_.states[i], static_cast<std::uint32_t>(i), kNeighbourFrame);
    return {"begin of the step", writer.take()};
}

Body BodyBuilder::free_inputs(std::string_view name, bool first, bool second) {
    Body body{std::string(name), {}};
    for (const auto& [wanted, scope] : {std::pair(first, kOwnFrame), std::pair(second, kNeighbourFrame)})
        if (wanted)
            body.operations.push_back({.kind = OperationKind::free,
                                       .part = layers::Part::pipeline,
                                       .scope = scope,
                                       .slot = static_cast<std::uint32_t>(layers::kInput),
                                       .bytes = stage_.boundary});
    return body;
}

Body BodyBuilder::transfers(const std::vector<TransferPart>& parts, TransferCall call) {
    std::string name;
    for (const TransferPart& part : parts) name += (name.empty() ? "" : ", ") + std::string(name_of(part.kind));
    Body body{call == TransferCall::await ? "await " + name : std::move(name), {}};
    if (call != TransferCall::await) issue(parts, body);
    if (call != TransferCall::post) await(parts, body, call == TransferCall::grouped_and_synchronised);
    for (Operation& operation : body.operations) operation.part = layers::Part::pipeline;
    return body;
}

/// What makes up a tensor that a neighbour would send, where the layers can be run.
std::uint32_t BodyBuilder::arrival(TransferKind kind, Scope scope) {
    const bool runs = !stage_.parameter_places.empty() || stage_.stand_ins;
    if (sends(kind) || !runs) return 0;
    layers::CallSizes sizes;
    sizes.rows = 1;
    sizes.columns = stage_.boundary.count / 2;
    return work(
        {layers::Call::load_hidden, sizes, {{.scope = scope, .access = layers::Access::write, .slot = slot_of(kind)}}});
}

void BodyBuilder::issue(const std::vector<TransferPart>& parts, Body& body) {
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (!sends(parts[i].kind))
            body.operations.push_back({.kind = OperationKind::allocate,
                                       .scope = scope_of(i),
                                       .slot = slot_of(parts[i].kind),
                                       .bytes = stage_.boundary});
    for (const TransferPart& part : parts)
        body.operations.push_back(
            {.kind = OperationKind::stream_wait, .stream = stream_of(part.kind), .other = Stream::main});
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const TransferPart& part = parts[i];
        const std::int64_t ranks = stage_.pipeline_size;
        const std::int64_t link =
            with_next(part.kind) ? stage_.pipeline_rank : (stage_.pipeline_rank + ranks - 1) % ranks;
        body.operations.push_back({.kind = OperationKind::peer_transfer,
                                   .stream = stream_of(part.kind),
                                   .transfer = part.kind,
                                   .slot = arrival(part.kind, scope_of(i)),
                                   .detail = label(name_of(part.kind)),
                                   .bytes = stage_.boundary,
                                   .duration = durations_.peer_transfer(link, stage_.boundary)});
    }
}

void BodyBuilder::await(const std::vector<TransferPart>& parts, Body& body, bool synchronise) const {
    for (const TransferPart& part : parts)
        body.operations.push_back(
            {.kind = OperationKind::stream_wait, .stream = Stream::main, .other = stream_of(part.kind)});
    // Megatron synchronises the device after every batched transfer (batch_p2p_sync, on by default).
    if (synchronise) body.operations.push_back({.kind = OperationKind::device_sync});
    const auto free = [&](Scope scope, std::uint32_t slot) {
        body.operations.push_back(
            {.kind = OperationKind::free, .scope = scope, .slot = slot, .bytes = stage_.boundary});
    };
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (sends(parts[i].kind) && !parts[i].is_static) free(scope_of(i), slot_of(parts[i].kind));
        if (parts[i].release_input)
            free(static_cast<Scope>(scope_of(i) + 1), static_cast<std::uint32_t>(layers::kInput));
    }
}

}  // namespace stowage::program
