#include "planner/program/body_builder.hpp"

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

types::ModuleSet modules_of(const std::array<std::optional<ReloadTarget>, types::kModuleCount>& targets) {
    types::ModuleSet modules;
    for (std::size_t i = 0; i < targets.size(); ++i)
        if (targets[i]) modules.insert(static_cast<types::Module>(i));
    return modules;
}

std::string with_modules(std::string name, std::string_view what, types::ModuleSet modules) {
    return modules.empty() ? name : name + ", " + std::string(what) + " " + modules.joined();
}

}  // namespace

std::string body_key(std::size_t script, const ForwardDecisions& forward, const BackwardDecisions* backward) {
    std::string key;
    append(key, script, 2);
    append(key, forward.offloaded);
    append(key, forward.unmanaged);
    append(key, (forward.input_held ? 1U : 0U) + (backward != nullptr ? 2U : 0U), 1);
    if (backward == nullptr) return key;
    append(key, backward->inline_read);
    append(key, backward->waits);
    append(key, backward->targets);
    return key;
}

BodyBuilder::BodyBuilder(const layers::StageLayers& stage, const std::vector<FrameLayout>& layouts,
                         const Durations& durations, StepProgram& program)
    : stage_(stage),
      layouts_(layouts),
      optimizer_layout_(stage.optimizer, types::OffloadChoice{}),
      durations_(durations),
      program_(program) {
    program_.pinned_keys.assign(1, 0);
    program_.labels.assign(1, "");
}

std::uint32_t BodyBuilder::label(std::string_view text) {
    const auto [entry, added] =
        label_numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(program_.labels.size()));
    if (added) program_.labels.emplace_back(text);
    return entry->second;
}

std::uint32_t BodyBuilder::pinned_key(Bytes bytes, types::DataType type) {
    const std::uint64_t key = static_cast<std::uint64_t>(bytes.count) << 8 | static_cast<std::uint64_t>(type);
    const auto [entry, added] =
        pinned_numbers_.try_emplace(key, static_cast<std::uint32_t>(program_.pinned_keys.size()));
    if (added) program_.pinned_keys.push_back(key);
    return entry->second;
}

Body BodyBuilder::forward(std::size_t script, const ForwardDecisions& decisions) {
    BodyWriter writer(*this, stage_.scripts[script], layouts_[script]);
    writer.forward(decisions, false);
    released_while_saved_ = released_while_saved_ || writer.released_while_saved();
    std::string name = with_modules(stage_.scripts[script].name + " forward", "offloads", decisions.offloaded);
    return {std::move(name), writer.take()};
}

Body BodyBuilder::backward(std::size_t script, const ForwardDecisions& forward_decisions,
                           const BackwardDecisions& decisions) {
    BodyWriter writer(*this, stage_.scripts[script], layouts_[script]);
    writer.forward(forward_decisions, true);
    writer.backward(forward_decisions, decisions);
    std::string name =
        with_modules(stage_.scripts[script].name + " backward", "waits for", modules_of(decisions.waits));
    return {with_modules(std::move(name), "reads inline", decisions.inline_read), writer.take()};
}

bool BodyBuilder::releases_input(std::size_t script, const ForwardDecisions& decisions) const {
    const layers::LayerScript& layer = stage_.scripts[script];
    for (const layers::Step& step : layer.forward) {
        if (step.kind != layers::StepKind::commit || !decisions.offloaded.contains(step.module)) continue;
        for (const layers::Slot slot : layer.releases[step.detail])
            if (slot == layers::kInput && layouts_[script].releasable(layer, slot, step.module)) return true;
    }
    return false;
}

Body BodyBuilder::optimizer(bool first) {
    BodyWriter writer(*this, stage_.optimizer, optimizer_layout_);
    for (std::size_t i = 0; first && i < stage_.states.size(); ++i)
        if (stage_.states[i].when == layers::StateBuffer::When::first_optimizer_step)
            writer.state(stage_.states[i], static_cast<std::uint32_t>(i), kNeighbourFrame);
    writer.plain_steps(stage_.optimizer.forward);
    return {first ? "first optimizer step" : "optimizer step", writer.take()};
}

Body BodyBuilder::setup() {
    BodyWriter writer(*this, stage_.optimizer, optimizer_layout_);
    for (std::size_t i = 0; i < stage_.states.size(); ++i)
        if (stage_.states[i].when == layers::StateBuffer::When::setup)
            writer.state(stage_.states[i], static_cast<std::uint32_t>(i), kOwnFrame);
    return {"setup", writer.take()};
}

Body BodyBuilder::transfer(std::string_view name, std::int8_t peer, std::optional<layers::Slot> sent,
                           std::optional<layers::Slot> received, bool release_input) {
    constexpr Stream kStream = Stream::pipeline_communication;
    Body body{std::string(name), {}};
    auto emit = [&body](Operation operation) {
        operation.part = layers::Part::pipeline;
        body.operations.push_back(operation);
    };
    if (received)
        emit({.kind = OperationKind::allocate,
              .scope = kNeighbourFrame,
              .slot = static_cast<std::uint32_t>(*received),
              .bytes = stage_.boundary});
    emit({.kind = OperationKind::stream_wait, .stream = kStream, .other = Stream::main});
    emit({.kind = OperationKind::peer_transfer,
          .stream = kStream,
          .peer = peer,
          .detail = label(name),
          .bytes = stage_.boundary,
          .duration = durations_.peer_transfer(stage_.pipeline_rank - (peer < 0 ? 1 : 0), stage_.boundary)});
    emit({.kind = OperationKind::stream_wait, .stream = Stream::main, .other = kStream});
    // Megatron synchronises the device after every batched transfer (batch_p2p_sync, on by default).
    emit({.kind = OperationKind::device_sync});
    if (sent)
        emit({.kind = OperationKind::free,
              .scope = kOwnFrame,
              .slot = static_cast<std::uint32_t>(*sent),
              .bytes = stage_.boundary});
    if (release_input)
        emit({.kind = OperationKind::free,
              .scope = kFirstTarget,
              .slot = static_cast<std::uint32_t>(layers::kInput),
              .bytes = stage_.boundary});
    return body;
}

}  // namespace stowage::program
