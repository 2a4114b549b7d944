#include "planner/layers/moe_latent.hpp"

namespace stowage::layers {
namespace {

LinearSite site_of(const Writer& writer, bool down) {
    LinearSite site;
    site.name = down ? "latent_fc1" : "latent_fc2";
    site.part = Part::latent;
    site.width = down ? writer.dim.routed_width : writer.dim.hidden;
    site.other_width = down ? writer.dim.hidden : writer.dim.routed_width;
    site.bias = writer.model.add_bias_linear;
    site.split = Split::none;
    return site;
}

}  // namespace

Linear latent_down_forward(Writer& writer, Slot normed) {
    return linear_forward(writer, site_of(writer, true), normed);
}

Slot latent_down_backward(Writer& writer, const Linear& linear, Slot gradient) {
    return linear_backward(writer, site_of(writer, true), linear, gradient);
}

Linear latent_up_forward(Writer& writer, Slot combined) {
    const Linear linear = linear_forward(writer, site_of(writer, false), combined);
    writer.script.drop(combined);
    return linear;
}

Slot latent_up_backward(Writer& writer, const Linear& linear) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::latent);
    const std::vector<Slot> converted = convert_gradient(writer, "latent_fc2", dim.local_tokens, dim.hidden);
    const Slot result = writer.make("latent_fc2.dgrad", {dim.local_tokens, dim.routed_width});
    writer.linear_gemm("latent_fc2.dgrad", dim.local_tokens, dim.routed_width, dim.hidden);
    read_operand(writer, linear.input);
    const std::vector<Slot> reconverted = convert_saved(writer, linear.input);
    writer.linear_weight_gradient("latent_fc2.wgrad", dim.local_tokens, dim.hidden, dim.routed_width);
    if (writer.model.add_bias_linear) {
        writer.memory_kernel("latent_fc2.bias_gradient", 2 * dim.hidden_elements());
        writer.accumulate_small_gradient("latent_fc2.bias", {dim.hidden});
    }
    forget_operand(writer, linear.input);
    drop_all(writer, reconverted);
    drop_all(writer, converted);
    return result;
}

void latent_parameters(Writer& writer) {
    if (!has_latent(writer)) return;
    for (const bool down : {true, false}) {
        const LinearSite site = site_of(writer, down);
        writer.replicated_parameter(site.name + ".weight", {site.width, site.other_width});
        if (site.bias) writer.replicated_parameter(site.name + ".bias", {site.width});
    }
}

}  // namespace stowage::layers
