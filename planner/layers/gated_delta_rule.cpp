#include "planner/layers/gated_delta_rule.hpp"

#include <string>

namespace stowage::layers {
namespace {

/// Shapes, operations and bytes of the kernels.
class RuleCosts {
public:
    RuleCosts(const Writer& writer, const DeltaDimensions& delta) : batch_(writer.dim.micro_batch), d_(delta) {}

    [[nodiscard]] Shape heads(std::int64_t size) const { return {batch_, d_.scan_sequence, d_.scan_value_heads, size}; }
    [[nodiscard]] Shape keys() const { return heads(d_.key_size); }
    [[nodiscard]] Shape values() const { return heads(d_.value_size); }
    [[nodiscard]] Shape numbers() const { return {batch_, d_.scan_sequence, d_.scan_value_heads}; }
    [[nodiscard]] Shape triangles() const { return heads(DeltaDimensions::kChunk); }
    [[nodiscard]] Shape states() const { return {batch_, d_.chunks, d_.scan_value_heads, d_.key_size, d_.value_size}; }

    /// Tokens against states: 2 T k v H.
    [[nodiscard]] double through_states() const { return 2 * number(rows() * d_.key_size * d_.value_size); }
    /// Tokens of a chunk against one another: 2 T Q size H.
    [[nodiscard]] double inside_chunks(std::int64_t size) const {
        return 2 * number(rows() * DeltaDimensions::kChunk * size);
    }
    [[nodiscard]] double inside_chunks() const { return inside_chunks(d_.key_size + d_.value_size); }

    [[nodiscard]] std::int64_t key_bytes() const { return 2 * rows() * d_.key_size; }
    [[nodiscard]] std::int64_t value_bytes() const { return 2 * rows() * d_.value_size; }
    [[nodiscard]] std::int64_t number_bytes() const { return 4 * rows(); }
    [[nodiscard]] std::int64_t triangle_bytes() const { return 2 * rows() * DeltaDimensions::kChunk; }
    [[nodiscard]] std::int64_t state_bytes() const {
        return 2 * batch_ * d_.chunks * d_.scan_value_heads * d_.key_size * d_.value_size;
    }

private:
    static double number(std::int64_t value) { return static_cast<double>(value); }
    [[nodiscard]] std::int64_t rows() const { return d_.scan_tokens * d_.scan_value_heads; }
    std::int64_t batch_;
    const DeltaDimensions& d_;
};

void rule_kernel(Writer& writer, const std::string& name, double flops, std::int64_t traffic) {
    writer.script.kernel({"delta_rule." + name, KernelClass::memory_bound, flops, Bytes{traffic}, false, {}});
}

/// w, u, states and corrected values, in that order.
std::vector<Slot> states_of_chunks(Writer& writer, const RuleCosts& costs) {
    std::vector<Slot> made{writer.make("delta_rule.w", costs.keys()), writer.make("delta_rule.u", costs.values())};
    rule_kernel(writer, "w_u", costs.inside_chunks(),
                2 * costs.key_bytes() + 2 * costs.value_bytes() + costs.triangle_bytes() + 2 * costs.number_bytes());
    made.push_back(writer.make("delta_rule.states", costs.states()));
    made.push_back(writer.make("delta_rule.corrected_values", costs.values()));
    rule_kernel(writer, "states", 2 * costs.through_states(),
                2 * costs.key_bytes() + 2 * costs.value_bytes() + costs.number_bytes() + costs.state_bytes());
    return made;
}

/// The inverse of the triangle of every chunk, made and inverted by one kernel over zeros.
Slot inverse_triangles(Writer& writer, const DeltaDimensions& delta, const RuleCosts& costs) {
    const Slot inverse = writer.make("delta_rule.inverse", costs.triangles());
    rule_kernel(writer, "zero", 0, costs.triangle_bytes());
    rule_kernel(writer, "inverse", costs.inside_chunks(delta.key_size),
                costs.key_bytes() + 2 * costs.number_bytes() + costs.triangle_bytes());
    return inverse;
}

void drop_slots(Writer& writer, const std::vector<Slot>& slots) {
    for (Slot slot : slots) writer.script.drop(slot);
}

}  // namespace

DeltaRule delta_rule_forward(Writer& writer, const DeltaDimensions& delta, const DeltaOperands& operands) {
    ScriptBuilder& script = writer.script;
    const RuleCosts costs(writer, delta);
    script.part(Part::mixer_scan);
    const Slot sums = writer.make("delta_rule.decay_sums", costs.numbers(), DataType::fp32);
    rule_kernel(writer, "cumsum", 0, 2 * costs.number_bytes());
    const Slot inverse = inverse_triangles(writer, delta, costs);
    const std::vector<Slot> made = states_of_chunks(writer, costs);
    DeltaRule rule;
    rule.output = writer.make("delta_rule.output", costs.values());
    rule_kernel(writer, "output", costs.through_states() + costs.inside_chunks(),
                2 * costs.key_bytes() + 2 * costs.value_bytes() + costs.number_bytes() + costs.state_bytes());
    drop_slots(writer, made);
    for (Slot slot : {operands.query, operands.key, operands.value, sums, operands.strength, inverse})
        rule.saved.push_back(script.save(slot));
    drop_slots(writer, {inverse, sums});
    return rule;
}

DeltaOperands delta_rule_backward(Writer& writer, const DeltaDimensions& delta, const DeltaRule& rule, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const RuleCosts costs(writer, delta);
    const std::int64_t wide = costs.key_bytes() + costs.value_bytes();
    script.part(Part::mixer_scan);
    for (SavedIndex saved : rule.saved) script.read(saved);
    const std::vector<Slot> made = states_of_chunks(writer, costs);
    const Slot own_values = writer.make("delta_rule.own_value_gradient", costs.values());
    rule_kernel(writer, "own_values.backward", costs.inside_chunks(), 2 * wide + costs.number_bytes());
    const Slot states = writer.make("delta_rule.state_gradient", costs.states());
    const Slot corrected = writer.make("delta_rule.corrected_value_gradient", costs.values());
    rule_kernel(writer, "states.backward", 3 * costs.through_states(),
                3 * wide + costs.number_bytes() + costs.state_bytes());
    script.drop(own_values);

    DeltaOperands gradients;
    gradients.query = writer.make("delta_rule.query_gradient", costs.keys());
    gradients.key = writer.make("delta_rule.key_gradient", costs.keys());
    const Slot w = writer.make("delta_rule.w_gradient", costs.keys());
    gradients.decay = writer.make("delta_rule.decay_gradient", costs.numbers(), DataType::fp32);
    rule_kernel(writer, "operands.backward",
                3 * costs.through_states() + costs.inside_chunks() + costs.inside_chunks(delta.key_size),
                6 * costs.key_bytes() + 3 * costs.value_bytes() + 2 * costs.number_bytes() + 2 * costs.state_bytes());
    const Slot more_key = writer.make("delta_rule.w_key_gradient", costs.keys());
    gradients.value = writer.make("delta_rule.value_gradient", costs.values());
    gradients.strength = writer.make("delta_rule.strength_gradient", costs.numbers());
    const Slot more_decay = writer.make("delta_rule.w_decay_gradient", costs.numbers(), DataType::fp32);
    rule_kernel(writer, "w_u.backward", 2 * costs.inside_chunks() + 2 * costs.inside_chunks(DeltaDimensions::kChunk),
                3 * wide + costs.triangle_bytes() + 4 * costs.number_bytes());
    rule_kernel(writer, "add", 0, 3 * costs.key_bytes() + 5 * costs.number_bytes());
    drop_slots(writer, {more_decay, more_key, w, corrected, states});
    drop_slots(writer, made);
    for (SavedIndex saved : rule.saved) script.forget(saved);
    script.drop(gradient);
    return gradients;
}

}  // namespace stowage::layers
