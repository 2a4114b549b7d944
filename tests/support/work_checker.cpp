#include "tests/support/work_checker.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace stowage::tests {
namespace {

using layers::Access;
using layers::Call;
using layers::CallSizes;
using program::BufferRef;
using program::Instance;
using program::Operation;
using program::OperationKind;
using program::StepProgram;
using program::Work;
using Operands = std::vector<ExpectedOperand>;

constexpr std::int64_t kUnknown = -1;

ExpectedOperand in(std::int64_t bytes) { return {Access::read, bytes}; }
ExpectedOperand out(std::int64_t bytes) { return {Access::write, bytes}; }
ExpectedOperand both(std::int64_t bytes) { return {Access::read_write, bytes}; }

/// Sizes of operands in bytes.
struct Lengths {
    explicit Lengths(const CallSizes& s)
        : rows(4 * s.rows),
          columns(2 * s.columns),
          matrix(2 * s.rows * s.columns),
          input(2 * s.rows * s.depth),
          weight(2 * s.columns * s.depth),
          gradient(s.gradient_type == types::DataType::fp32 ? 2 : 1),
          value_size(s.value_size > 0 ? s.value_size : s.head_size),
          packed(2 * s.rows * ((s.heads + s.groups) * s.head_size + s.groups * value_size)),
          heads(2 * s.rows * s.heads * value_size),
          strided(2 * s.rows * (s.stride > 0 ? s.stride : s.columns)),
          statistics(4 * s.batch * s.heads * s.sequence),
          partial(4 * layers::norm_partials(s.rows)) {}
    std::int64_t rows, columns, matrix, input, weight, gradient, value_size, packed, heads, strided, statistics,
        partial;
};

Operands norm_forward(const CallSizes& s, const Lengths& n) {
    Operands list{in(n.strided), in(n.columns)};
    if (s.layer_norm) list.push_back(in(n.columns));
    list.insert(list.end(), {out(n.matrix), out(n.rows)});
    if (s.layer_norm) list.push_back(out(n.rows));
    return list;
}

Operands norm_backward(const CallSizes& s, const Lengths& n) {
    Operands list{in(n.strided), in(n.columns), in(n.rows)};
    if (s.layer_norm) list.push_back(in(n.rows));
    list.push_back(in(n.matrix));
    if (s.has_addend) list.push_back(in(n.matrix));
    list.insert(list.end(), {out(n.strided), both(n.gradient * n.columns)});
    if (s.layer_norm) list.push_back(both(n.gradient * n.columns));
    list.push_back(out((s.layer_norm ? 2 : 1) * n.partial * s.columns));
    return list;
}

/// Keys without the turned columns beside values, and the table of angles.
std::int64_t keys_and_values(const CallSizes& s) {
    return 2 * s.rows * s.heads * (s.head_size - s.rope_size + s.value_size);
}
std::int64_t angles(const CallSizes& s) { return 4 * s.sequence * s.rope_size; }

Operands latent_pack_forward(const CallSizes& s, const Lengths& n) {
    return {in(2 * s.rows * s.heads * s.head_size), in(keys_and_values(s)), in(n.strided), in(angles(s)),
            out(n.packed)};
}

Operands latent_pack_backward(const CallSizes& s, const Lengths& n) {
    return {in(n.packed), in(angles(s)), out(2 * s.rows * s.heads * s.head_size), out(keys_and_values(s)),
            out(n.strided)};
}

Operands linear_forward(const CallSizes& s, const Lengths& n) {
    Operands list{in(n.input), in(n.weight)};
    if (s.has_bias) list.push_back(in(n.columns));
    if (s.has_addend) list.push_back(in(n.matrix));
    list.insert(list.end(), {out((s.fp32_result ? 2 : 1) * n.matrix), out(s.workspace_bytes)});
    return list;
}

/// Of a linear in FP8, one byte an element of its factors.
Operands fp8_forward(const CallSizes& s, const Lengths& n) {
    Operands list{in(n.input / 2), in(8), in(n.weight / 2), in(8)};
    if (s.has_bias) list.push_back(in(n.columns));
    if (s.has_addend) list.push_back(in(n.matrix));
    list.insert(list.end(), {out(n.matrix), out(s.workspace_bytes)});
    return list;
}

/// Operands of calls in FP8; nothing for others.
Operands fp8_operands(const Call& call, const CallSizes& s, const Lengths& n) {
    switch (call) {
        case Call::fp8_scale: return {in(n.matrix), out(8), out(n.partial)};
        case Call::fp8_quantize:
            if (s.plain && s.transposed) return {in(n.matrix), in(8), out(n.matrix / 2), out(n.matrix / 2)};
            return {in(n.matrix), in(8), out(n.matrix / 2)};
        case Call::fp8_linear_forward: return fp8_forward(s, n);
        case Call::fp8_linear_input_gradient:
            return {in(n.matrix / 2), in(8), in(n.weight / 2), in(8), out(n.input), out(s.workspace_bytes)};
        case Call::fp8_linear_weight_gradient:
            return {in(n.matrix / 2),      in(8), in(n.input / 2), in(8), both(n.gradient * n.weight),
                    out(s.workspace_bytes)};
        default: return {};
    }
}

Operands head_norm(const Call& call, const CallSizes& s, const Lengths& n) {
    Operands list{in(n.packed), in(2 * s.head_size), in(2 * s.head_size)};
    if (s.rotary) list.push_back(in(4 * s.sequence * s.head_size));
    if (call == Call::head_norm_forward) {
        list.push_back(out(n.packed));
        return list;
    }
    const std::int64_t gradient = n.gradient * 2 * s.head_size;
    list.push_back(both(n.packed));
    list.push_back(both(gradient));
    list.push_back(both(gradient));
    list.push_back(out(2 * n.partial * s.head_size));
    return list;
}

/// Operands of the calls of layers with experts; nothing for others.
Operands expert_operands(const Call& call, const CallSizes& s, const Lengths& n) {
    const std::int64_t choices = 4 * s.rows * s.topk;
    const std::int64_t chosen = n.matrix * s.topk;
    const std::int64_t grouped = s.experts * n.weight;
    switch (call) {
        case Call::router_forward: return {in(4 * s.rows * s.experts), in(choices), out(choices), out(choices)};
        case Call::router_backward:
            return {in(4 * s.rows * s.experts), in(choices), in(choices), out(2 * s.rows * s.experts)};
        case Call::route_rows: return {in(choices), out(choices), out(choices), out(4 * s.experts)};
        case Call::counts_to_host: return {in(4 * s.experts)};
        case Call::permute_forward: return {in(n.matrix), in(choices), in(choices), out(chosen), out(choices)};
        case Call::permute_backward: return {in(chosen), in(choices), in(choices), out(n.matrix), out(choices)};
        case Call::unpermute_forward:
            if (s.has_addend) return {in(chosen), in(choices), in(n.matrix), out(n.matrix)};
            return {in(chosen), in(choices), out(n.matrix)};
        case Call::unpermute_backward: return {in(n.matrix), in(choices), out(chosen)};
        case Call::weighted_activation_forward: return {in(2 * n.matrix), in(n.rows), out(n.matrix)};
        case Call::weighted_activation_backward:
            return {in(2 * n.matrix), in(n.rows), in(n.matrix), out(2 * n.matrix), out(n.matrix), out(n.rows)};
        case Call::grouped_linear_forward: return {in(n.input), in(grouped), out(n.matrix), out(s.workspace_bytes)};
        case Call::grouped_linear_input_gradient:
            return {in(n.matrix), in(grouped), out(n.input), out(s.workspace_bytes)};
        case Call::grouped_linear_weight_gradient:
            return {in(n.matrix), in(n.input), both(n.gradient * grouped), out(s.workspace_bytes)};
        default: return {};
    }
}

/// First parts of buffers.
Operands stand_in_operands(const layers::StandInWork& work) {
    Operands list(work.reads.size(), in(kUnknown));
    list.insert(list.end(), work.writes.size(), out(kUnknown));
    if (work.sums > types::Bytes{}) list.push_back(both(work.sums.count));
    return list;
}

/// Rows may have weights.
Operands exchange_rows(const CallSizes& s, const Lengths& n, bool weighted) {
    const std::int64_t moved = 2 * s.depth * s.columns;
    if (weighted) return {in(n.matrix), in(n.rows), out(moved), out(4 * s.depth)};
    return {in(n.matrix), out(moved)};
}

/// Whose kernels an operation without work may be: none of the layers'.
bool needs_work(const Operation& operation) {
    return operation.kind == OperationKind::compute || operation.kind == OperationKind::copy;
}

class Checker {
public:
    explicit Checker(const StepProgram& program)
        : program_(program), places_(program.parameter_places.begin(), program.parameter_places.end()) {}

    void stage(program::RunStage stage) {
        capture_stage_ = stage == program::RunStage::capture;
        for (const Instance& instance : program_.instances(stage))
            for (const Operation& operation : program_.bodies[index(instance.body)].operations)
                step(instance, operation);
    }

    WorkFacts take() { return std::move(facts_); }

private:
    [[nodiscard]] std::uint32_t frame_of(const Instance& instance, program::Scope scope) const {
        if (scope == program::kGraphScope) return program_.graph_frame;
        return program_.scope_frames[instance.frames_begin + scope];
    }
    [[nodiscard]] std::uint32_t slot_of(const Instance& instance, program::Scope scope, std::uint32_t slot) const {
        return program_.frame_slots[frame_of(instance, scope)] + slot;
    }

    void step(const Instance& instance, const Operation& operation) {
        switch (operation.kind) {
            case OperationKind::allocate:
            case OperationKind::pinned_acquire: {
                const std::uint32_t slot = slot_of(instance, operation.scope, operation.slot);
                live_[slot] = operation.bytes.count;
                if (capture_stage_) captured_[slot] = operation.bytes.count;
                written_.erase(slot);
                break;
            }
            case OperationKind::free:
            case OperationKind::pinned_release: live_.erase(slot_of(instance, operation.scope, operation.slot)); break;
            case OperationKind::compute:
            case OperationKind::copy:
            case OperationKind::collective:
            case OperationKind::peer_transfer: work(instance, operation); break;
            case OperationKind::graph_begin: in_graph_ = true; break;
            case OperationKind::graph_end: in_graph_ = false; break;
            case OperationKind::graph_launch: launch(instance); break;
            default: break;
        }
    }

    /// What the graph reads of its own buffers was copied there; a gradient since the last launch that read it.
    void launch(const Instance& launching) {
        const program::Graph& graph = program_.graphs[launching.graph];
        std::set<std::uint32_t> used_up;
        for (std::uint32_t i = graph.begin; i < graph.end; ++i) {
            const Instance& instance = program_.instances(program::RunStage::capture)[i];
            for (const Operation& operation : program_.bodies[index(instance.body)].operations) {
                if (!needs_work(operation) || operation.slot == 0) continue;
                for (const BufferRef& buffer : program_.works[operation.slot].buffers) {
                    if (!of_graph(buffer)) continue;
                    const std::uint32_t slot = graph_slot(instance, buffer);
                    if (!given_.contains(slot)) problem(instance, operation, "reads what this launch was not given");
                    if (buffer.space == BufferRef::Space::graph_gradient) used_up.insert(slot);
                }
            }
        }
        for (const std::uint32_t slot : used_up) given_.erase(slot);
        ++facts_.launches;
    }

    static bool of_graph(const BufferRef& buffer) {
        return buffer.space == BufferRef::Space::graph_input || buffer.space == BufferRef::Space::graph_gradient;
    }
    [[nodiscard]] std::uint32_t graph_slot(const Instance& instance, const BufferRef& buffer) const {
        const program::Graph& graph = program_.graphs[instance.graph];
        const bool input = buffer.space == BufferRef::Space::graph_input;
        return program_.frame_slots[program_.graph_frame] + (input ? graph.inputs_begin : graph.gradients_begin) +
               buffer.slot;
    }

    /// Inside a capture it is only read, outside only written.
    void graph_buffer(const Instance& instance, const Operation& operation, const BufferRef& buffer, std::int64_t bytes,
                      const std::string& place) {
        const std::uint32_t slot = graph_slot(instance, buffer);
        const auto held = live_.find(slot);
        if (held == live_.end() || slot >= program_.frame_slots[program_.graph_frame + 1])
            return problem(instance, operation, place + " is no buffer of a graph");
        if (bytes != kUnknown && held->second != bytes)
            problem(instance, operation,
                    place + " has " + std::to_string(held->second) + " bytes, expected " + std::to_string(bytes));
        if ((buffer.access == Access::read) != in_graph_) problem(instance, operation, place + " is a graph's");
        if (!in_graph_) given_.insert(slot);
    }

    void work(const Instance& instance, const Operation& operation) {
        if (operation.slot == 0) {
            if (needs_work(operation) && !program::is_read_by_host(operation))
                problem(instance, operation, "has no work");
            return;
        }
        ++facts_.checked;
        const Work& work = program_.works[operation.slot];
        Operands expected = expected_operands(work.call, work.sizes);
        if (work.call == Call::copy) expected = {in(operation.bytes.count), out(operation.bytes.count)};
        const bool gathers = work.call == Call::copy && operation.bytes == types::Bytes{};  // of a view's storage
        if (gathers) expected = {in(kUnknown), out(work.sizes.rows)};
        if (work.call == Call::exchange_rows && work.buffers.size() == 4)
            expected = exchange_rows(work.sizes, Lengths(work.sizes), true);
        if (work.call == Call::copy && !gathers && operation.kind == OperationKind::compute &&
            work.sizes.rows != operation.bytes.count)
            problem(instance, operation, "copies " + std::to_string(work.sizes.rows) + " bytes");
        if (expected.size() != work.buffers.size())
            return problem(instance, operation, "has " + std::to_string(work.buffers.size()) + " operands");
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const std::string place = "operand " + std::to_string(i);
            if (work.buffers[i].access != expected[i].access) problem(instance, operation, place + ": wrong access");
            operand(instance, operation, work.buffers[i], expected[i].bytes, place);
        }
        if (work.call == Call::stand_in) touched(instance, operation, work);
        for (const BufferRef& buffer : work.buffers)
            if (buffer.access != Access::read && buffer.space == BufferRef::Space::frame)
                written_.insert(slot_of(instance, buffer.scope, buffer.slot));
    }

    /// Whole pieces, no more than a tensor has; read no further than they were written.
    void touched(const Instance& instance, const Operation& operation, const Work& work) {
        const layers::StandInWork& sizes = work.sizes.stand_in;
        std::vector<types::Bytes> bytes = sizes.reads;
        bytes.insert(bytes.end(), sizes.writes.begin(), sizes.writes.end());
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const BufferRef& buffer = work.buffers[i];
            if (bytes[i].count <= 0 || bytes[i].count % layers::kStandInPiece != 0)
                problem(instance, operation, "operand " + std::to_string(i) + " is no whole pieces");
            if (buffer.space != BufferRef::Space::frame) continue;
            std::uint32_t slot = slot_of(instance, buffer.scope, buffer.slot);
            if (!live_.contains(slot)) slot = captured_slot_of(instance, buffer);
            const auto held = live_.contains(slot) ? live_.find(slot) : captured_.find(slot);
            if (held != captured_.end() && held->second < bytes[i].count)
                problem(instance, operation, "operand " + std::to_string(i) + " is longer than its buffer");
        }
    }

    void operand(const Instance& instance, const Operation& operation, const BufferRef& buffer, std::int64_t bytes,
                 const std::string& place) {
        switch (buffer.space) {
            case BufferRef::Space::frame: return tensor(instance, operation, buffer, bytes, place);
            case BufferRef::Space::parameter: return parameter(instance, operation, buffer, bytes / 2, place);
            case BufferRef::Space::gradient: {
                const auto type = program_.works[operation.slot].sizes.gradient_type;
                return parameter(instance, operation, buffer, bytes / types::size_of(type), place);
            }
            case BufferRef::Space::state: return state(instance, operation, buffer, bytes, place);
            case BufferRef::Space::fp8_weight:
            case BufferRef::Space::fp8_transposed_weight:
            case BufferRef::Space::fp8_weight_scales: return fp8_weight(instance, operation, buffer, bytes, place);
            case BufferRef::Space::graph_input:
            case BufferRef::Space::graph_gradient: return graph_buffer(instance, operation, buffer, bytes, place);
        }
    }

    /// Where a graph of the layer made it, if the frame itself holds nothing.
    [[nodiscard]] std::uint32_t captured_slot_of(const Instance& instance, const BufferRef& buffer) const {
        const std::uint32_t frame = frame_of(instance, buffer.scope);
        const bool replays = frame < program_.captured_frames.size();
        return program_.frame_slots[replays ? program_.captured_frames[frame] : frame] + buffer.slot;
    }

    void tensor(const Instance& instance, const Operation& operation, const BufferRef& buffer, std::int64_t bytes,
                const std::string& place) {
        std::uint32_t slot = slot_of(instance, buffer.scope, buffer.slot);
        auto held = live_.find(slot);
        if (held == live_.end()) {
            slot = captured_slot_of(instance, buffer);
            held = captured_.find(slot);
            if (capture_stage_ || held == captured_.end())
                return problem(instance, operation, place + " is not allocated");
        }
        if (bytes != kUnknown && held->second != bytes)
            problem(instance, operation,
                    place + " has " + std::to_string(held->second) + " bytes, expected " + std::to_string(bytes));
        if (buffer.access != Access::write && !written_.contains(slot))
            problem(instance, operation, place + " is read and was never written");
    }

    /// A place is a multiple of 128 elements, and the next one follows the parameter's end.
    void parameter(const Instance& instance, const Operation& operation, const BufferRef& buffer, std::int64_t elements,
                   const std::string& place) {
        const std::size_t number = program_.frame_parameters[frame_of(instance, buffer.scope)] + buffer.slot;
        if (number >= program_.parameter_places.size())
            return problem(instance, operation, place + " is no parameter of the rank");
        const std::int64_t begin = program_.parameter_places[number];
        const auto behind = places_.upper_bound(begin);
        const std::int64_t end =
            behind != places_.end() ? *behind : live_.at(program_.frame_slots[program_.persistent_frames]) / 2;
        if (begin % 128 != 0 || end - begin < elements || end - begin >= elements + 128)
            problem(instance, operation,
                    place + " is a parameter of " + std::to_string(end - begin) + " elements, expected " +
                        std::to_string(elements));
    }

    /// Forward products sum along a weight's rows, those of the input's gradient along its columns.
    static bool lies_wrong(Call call, BufferRef::Space space) {
        return (call == Call::fp8_linear_forward && space == BufferRef::Space::fp8_transposed_weight) ||
               (call == Call::fp8_linear_input_gradient && space == BufferRef::Space::fp8_weight);
    }

    /// Lies in the state, is not over its neighbour, and was made before it is read.
    void fp8_weight(const Instance& instance, const Operation& operation, const BufferRef& buffer, std::int64_t bytes,
                    const std::string& place) {
        const std::size_t number = program_.frame_parameters[frame_of(instance, buffer.scope)] + buffer.slot;
        if (number >= program_.fp8_places.size())
            return problem(instance, operation, place + " is no parameter with FP8 copies");
        const layers::Fp8Place& at = program_.fp8_places[number];
        const Call call = program_.works[operation.slot].call;
        if (lies_wrong(call, buffer.space)) problem(instance, operation, place + " lies the other way");
        std::int64_t begin = at.scales;
        std::int64_t end = at.plain;
        if (buffer.space == BufferRef::Space::fp8_weight) std::tie(begin, end) = std::pair{at.plain, at.transposed};
        if (buffer.space == BufferRef::Space::fp8_transposed_weight)
            std::tie(begin, end) = std::pair{at.transposed, 2 * at.transposed - at.plain};
        if (begin < 0 || begin % 256 != 0 || end - begin < bytes || end - begin >= bytes + 256)
            return problem(instance, operation, place + " is an FP8 copy of another length");
        const auto slot = program_.state_slots[static_cast<std::size_t>(layers::StowageState::fp8_weights)];
        if (!slot || live_.at(program_.frame_slots[program_.persistent_frames] + *slot) < end)
            problem(instance, operation, place + " is longer than the state");
        if (buffer.access == Access::write) fp8_written_.insert(begin);
        if (buffer.access == Access::read && !fp8_written_.contains(begin))
            problem(instance, operation, place + " is read and was never made");
    }

    void state(const Instance& instance, const Operation& operation, const BufferRef& buffer, std::int64_t bytes,
               const std::string& place) {
        const auto& state_slot = program_.state_slots[buffer.slot];
        if (!state_slot) return problem(instance, operation, place + " is no state of the rank");
        const auto held = live_.find(program_.frame_slots[program_.persistent_frames] + *state_slot);
        if (held == live_.end()) return problem(instance, operation, place + " is not there");
        if (bytes > held->second) problem(instance, operation, place + " is longer than the state");
    }

    void problem(const Instance& instance, const Operation& operation, const std::string& what) {
        if (facts_.problems.size() >= 20) return;
        facts_.problems.push_back(program_.bodies[index(instance.body)].name + ": " +
                                  program_.labels[operation.detail] + ": " + what);
    }

    const StepProgram& program_;
    std::set<std::int64_t> places_;                   ///< of parameters
    std::map<std::uint32_t, std::int64_t> live_;      ///< bytes by slot, on the device or pinned
    std::map<std::uint32_t, std::int64_t> captured_;  ///< bytes of what graphs made, also where it is free again
    std::set<std::uint32_t> written_;
    std::set<std::int64_t> fp8_written_;  ///< offsets of FP8 copies of weights
    std::set<std::uint32_t> given_;       ///< graphs' own buffers with something in them
    bool capture_stage_ = false;
    bool in_graph_ = false;
    WorkFacts facts_;
};

}  // namespace

std::vector<ExpectedOperand> expected_operands(const Call& call, const CallSizes& s) {
    const Lengths n(s);
    const std::int64_t expanded = (s.gated ? 2 : 1) * n.matrix;
    switch (call) {
        case Call::none:
        case Call::copy: return {};
        case Call::stand_in: return stand_in_operands(s.stand_in);
        case Call::load_tokens: return {out(n.rows)};
        case Call::load_hidden: return {out(n.matrix)};
        case Call::embedding_forward: return {in(n.rows), in(n.weight), out(n.matrix)};
        case Call::embedding_backward: return {in(n.rows), in(n.matrix), both(n.gradient * n.weight)};
        case Call::norm_forward: return norm_forward(s, n);
        case Call::norm_backward: return norm_backward(s, n);
        case Call::linear_forward: return linear_forward(s, n);
        case Call::linear_input_gradient: return {in(n.matrix), in(n.weight), out(n.input), out(s.workspace_bytes)};
        case Call::linear_weight_gradient:
            return {in(n.matrix), in(n.input), both(n.gradient * n.weight), out(s.workspace_bytes)};
        case Call::bias_gradient: return {in(n.matrix), both(n.gradient * n.columns), out(n.partial * s.columns)};
        case Call::rotary_forward:
        case Call::rotary_backward: return {both(n.packed), in(4 * s.sequence * s.head_size)};
        case Call::head_norm_forward:
        case Call::head_norm_backward: return head_norm(call, s, n);
        case Call::latent_pack_forward: return latent_pack_forward(s, n);
        case Call::latent_pack_backward: return latent_pack_backward(s, n);
        case Call::attention_forward: return {in(n.packed), out(n.heads), out(n.statistics), out(s.workspace_bytes)};
        case Call::attention_backward:
            return {in(n.packed), in(n.heads), in(n.statistics), in(n.heads), out(n.packed), out(s.workspace_bytes)};
        case Call::activation_forward: return {in(expanded), out(n.matrix)};
        case Call::activation_backward: return {in(expanded), in(n.matrix), out(expanded), out(n.matrix)};
        case Call::cross_entropy_forward: return {in(n.matrix), in(n.rows), out(n.rows), out(4)};
        case Call::cross_entropy_backward: return {both(n.matrix), in(n.rows), in(n.rows)};
        case Call::mean_square_forward: return {in(n.matrix), out(4), out(n.partial)};
        case Call::mean_square_backward: return {in(n.matrix), out(n.matrix)};
        case Call::exchange_rows: return exchange_rows(s, n, false);
        case Call::add: return {both(n.matrix), in(n.matrix)};
        case Call::repeat_rows: return {in(n.matrix), out(s.batch * n.matrix)};
        case Call::keep_rows: return {in(s.batch * n.matrix), out(n.matrix)};
        case Call::join_columns: return {in(n.matrix), in(n.matrix), out(2 * n.matrix)};
        case Call::split_columns: return {in(2 * n.matrix), out(n.matrix), out(n.matrix)};
        case Call::gradient_norm: return {in(n.gradient * 2 * s.rows), both(2 * 4), out(n.partial)};
        case Call::adam_update:
            return {in(n.gradient * 2 * s.rows), in(2 * 4), both(n.rows), both(n.rows), both(n.rows), out(2 * s.rows)};
        case Call::clear: return {out(s.rows)};
        default: break;
    }
    const Operands of_experts = expert_operands(call, s, n);
    return of_experts.empty() ? fp8_operands(call, s, n) : of_experts;
}

WorkFacts check_work(const StepProgram& program, const std::vector<program::RunStage>& run) {
    Checker checker(program);
    for (const program::RunStage stage : run) checker.stage(stage);
    return checker.take();
}

}  // namespace stowage::tests
