#include "tests/support/peer_stage_layers.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/peer_stage_times.hpp"

namespace stowage::testing::peer {
namespace {

using layers::CopyForm;
using layers::DataType;
using layers::Part;
using layers::Phase;
using layers::SavedIndex;
using layers::ScriptBuilder;
using layers::ScriptKind;
using layers::Slot;
using types::Bytes;
using types::KernelClass;
using types::Module;

class LayerWriter {
public:
    LayerWriter(bool first, bool contiguous_gradients, double gemm_time)
        : first_(first),
          contiguous_gradients_(contiguous_gradients),
          gemm_time_(gemm_time),
          script_(first ? ScriptKind::embedding : ScriptKind::dense_layer, first ? "first peer layer" : "peer layer") {
        script_.boundary(kHiddenShape, kHiddenShape, DataType::bf16);
        input_ = first ? script_.held("caller's input", kHiddenShape) : layers::kInput;
        qkv_weight_ = script_.held("qkv.weight", {3 * kHidden, kHidden});
        proj_weight_ = script_.held("proj.weight", {kHidden, kHidden});
    }

    layers::LayerScript write() {
        attention_forward();
        mlp_forward();
        mlp_backward();
        attention_backward();
        return script_.build();
    }

private:
    // Kernels -------------------------------------------------------------------------------------------------------

    void kernel(const char* name, KernelClass kind, double ms, double flops = 0) {
        script_.kernel({name, kind, flops, Bytes{}, false, steady_time(ms)});
    }
    void linear_forward(const char* name, std::int64_t in, std::int64_t out) {
        const double flops = linear_flops(in, out);
        rest_forward("memset", kMemsetForward);
        kernel(name, KernelClass::gemm, gemm_time_ * kForwardLinear * flops / (kLayers * layer_flops()), flops);
    }
    void rest_forward(const char* name, double us) {
        kernel(name, KernelClass::memory_bound, kForwardRest * us / (kLayers * kLayerForwardRest));
    }
    void rest_backward(const char* name, double us) {
        kernel(name, KernelClass::memory_bound, kBackwardRest * us / kBackwardRestSum);
    }

    /// Weight gradient and input gradient of a linear layer; the caller frees what they read in between.
    struct LinearGradients {
        Slot weight;
        Slot input;
        double mib;
    };
    LinearGradients linear_backward(const char* name, std::int64_t in, std::int64_t out) {
        const double flops = linear_flops(in, out);
        const double ms = gemm_time_ * kBackwardLinear / 2 * flops / (kLayers * layer_flops());
        const Slot weight = script_.tensor(std::string(name) + " weight gradient", {out, in});
        const Slot input = script_.tensor(std::string(name) + " input gradient", {kTokens, in});
        script_.phase(Phase::weight_gradient);
        script_.allocate(weight);
        rest_backward("memset", kMemsetBackward);
        kernel(name, KernelClass::gemm, ms, flops);
        script_.phase(Phase::backward);
        script_.allocate(input);
        rest_backward("memset", kMemsetBackward);
        kernel(name, KernelClass::gemm, ms, flops);
        return {weight, input, static_cast<double>(in * out * 2) / 1048576.0};
    }
    void accumulate(const LinearGradients& gradients) {
        rest_backward("accumulate weight gradient", kAccumulate * gradients.mib);
        script_.drop(gradients.weight);
    }

    // Forward -------------------------------------------------------------------------------------------------------

    struct Norm {
        Slot output, rstd;
        SavedIndex input_saved, rstd_saved;
    };
    Norm norm_forward(const char* name, Slot input, Module module) {
        Norm norm{};
        norm.output = script_.tensor(std::string(name) + " output", kHiddenShape);
        norm.rstd = script_.tensor(std::string(name) + " rstd", {1, kTokens, 1}, DataType::fp32);
        script_.start(module);
        script_.allocate(norm.output);
        script_.allocate(norm.rstd);
        rest_forward(name, kNormForward);
        norm.input_saved = script_.save(input, module);
        norm.rstd_saved = script_.save(norm.rstd, module);
        script_.drop(norm.rstd);
        return norm;
    }

    void attention_forward() {
        script_.begin_forward(Part::attn_norm);
        attn_norm_ = norm_forward("attn_norm", input_, Module::attn_norm);
        qkv_forward();
        core_attention_forward();
        projection_forward();
    }

    void qkv_forward() {
        script_.part(Part::qkv_linear);
        script_.start(Module::qkv_linear);
        qkv_ = script_.tensor("qkv", {1, kTokens, 3 * kHidden});
        script_.allocate(qkv_);
        linear_forward("qkv", kHidden, 3 * kHidden);
        qkv_input_ = script_.save(attn_norm_.output, Module::qkv_linear);
        qkv_weight_saved_ = script_.save(qkv_weight_, Module::qkv_linear);
        script_.commit(Module::qkv_linear);
        script_.drop(attn_norm_.output);
    }

    void core_attention_forward() {
        script_.part(Part::core_attn);
        script_.start(Module::core_attn);
        seed_ = script_.tensor("seed", {1}, DataType::int64);
        offset_ = script_.tensor("offset", {1}, DataType::int64);
        attention_out_ = script_.tensor("attention output", kHiddenShape);
        softmax_ = script_.tensor("softmax stats", {1, kHeads, kTokens, 1}, DataType::fp32);
        const Slot workspace = script_.tensor("cudnn forward workspace", {128});
        for (const Slot slot : {seed_, offset_, attention_out_, softmax_, workspace}) script_.allocate(slot);
        rest_forward("memset", kMemsetForward);
        kernel("attention", KernelClass::attention, kForwardAttention / kLayers);
        script_.drop(workspace);
        for (const char* name : {"q", "k", "v"})
            attention_saved_.push_back(
                script_.save_view(name, qkv_, Module::core_attn, kHeadShape, CopyForm::gathered));
        attention_saved_.push_back(
            script_.save_view("out", attention_out_, Module::core_attn, kHeadShape, CopyForm::contiguous));
        for (const Slot slot : {softmax_, seed_, offset_}) {
            attention_saved_.push_back(script_.save(slot, Module::core_attn));
            script_.drop(slot);
        }
        script_.commit(Module::core_attn, {qkv_});
        script_.drop(qkv_);
    }

    void projection_forward() {
        script_.part(Part::attn_proj);
        script_.start(Module::attn_proj);
        const Slot projected = script_.tensor("proj output", kHiddenShape);
        script_.allocate(projected);
        linear_forward("proj", kHidden, kHidden);
        proj_input_ = script_.save(attention_out_, Module::attn_proj);
        proj_weight_saved_ = script_.save(proj_weight_, Module::attn_proj);
        script_.commit(Module::attn_proj, {attention_out_});
        script_.drop(attention_out_);
        script_.part(Part::residual);
        middle_ = script_.tensor("attention residual", kHiddenShape);
        script_.allocate(middle_);
        rest_forward("add", kAddForward);
        script_.drop(projected);
        script_.commit(Module::attn_norm);
    }

    void mlp_forward() {
        script_.part(Part::mlp_norm);
        mlp_norm_ = norm_forward("mlp_norm", middle_, Module::mlp_norm);
        script_.part(Part::mlp_fc1);
        const Slot fc1 = script_.tensor("fc1 output", {1, kTokens, 2 * kFfn});
        script_.allocate(fc1);
        linear_forward("fc1", kHidden, 2 * kFfn);
        fc1_input_ = script_.save(mlp_norm_.output);
        script_.drop(mlp_norm_.output);
        activation_forward(fc1);
        script_.part(Part::mlp_fc2);
        const Slot output = script_.tensor("fc2 output", kHiddenShape);
        script_.allocate(output);
        linear_forward("fc2", kFfn, kHidden);
        script_.part(Part::residual);
        script_.allocate(layers::kOutput);
        rest_forward("add", kAddForward);
        script_.drop(output);
        script_.commit(Module::mlp_norm);
        script_.drop(middle_);
        script_.drop(input_);
    }

    void activation_forward(Slot fc1) {
        script_.part(Part::mlp_act);
        const Slot silu = script_.tensor("silu output", {1, kTokens, kFfn});
        const Slot product = script_.tensor("mul output", {1, kTokens, kFfn});
        script_.allocate(silu);
        rest_forward("silu", kActivationForward);
        gate_ = script_.save_view("gate", fc1, std::nullopt, {1, kTokens, kFfn}, CopyForm::gathered);
        script_.allocate(product);
        rest_forward("mul", kActivationForward);
        silu_ = script_.save(silu);
        up_ = script_.save_view("up", fc1, std::nullopt, {1, kTokens, kFfn}, CopyForm::gathered);
        fc2_input_ = script_.save(product);
        for (const Slot slot : {fc1, silu, product}) script_.drop(slot);
    }

    // Backward ------------------------------------------------------------------------------------------------------

    void mlp_backward() {
        script_.begin_backward(Part::mlp_fc2);
        script_.commit(Module::mlp_norm);
        script_.read(fc2_input_);
        const LinearGradients fc2 = linear_backward("fc2", kFfn, kHidden);
        script_.forget(fc2_input_);
        accumulate(fc2);
        const Slot fc1_gradient = activation_backward(fc2.input);
        script_.part(Part::mlp_fc1);
        script_.read(fc1_input_);
        const LinearGradients fc1 = linear_backward("fc1", kHidden, 2 * kFfn);
        script_.drop(fc1_gradient);
        script_.forget(fc1_input_);
        accumulate(fc1);
        script_.part(Part::mlp_norm);
        const Slot gradient = script_.tensor("mlp_norm input gradient", kHiddenShape);
        norm_backward("mlp_norm", mlp_norm_, gradient, fc1.input);
        script_.drop(gradient);
        script_.start(Module::mlp_norm);
    }

    /// Result: the gradient of the first linear's output.
    Slot activation_backward(Slot product_gradient) {
        script_.part(Part::mlp_act);
        const std::vector<std::int64_t> shape{1, kTokens, kFfn};
        const Slot silu_gradient = script_.tensor("silu gradient", shape);
        const Slot up_gradient = script_.tensor("up gradient", shape);
        const Slot gate_gradient = script_.tensor("gate gradient", shape);
        const Slot whole = script_.tensor("fc1 output gradient", {1, kTokens, 2 * kFfn});
        for (const SavedIndex saved : {silu_, up_}) script_.read(saved);
        script_.allocate(up_gradient);
        rest_backward("mul", kContiguousMul);
        script_.allocate(silu_gradient);
        rest_backward("mul by a half", kActivationBackward);
        script_.drop(product_gradient);
        for (const SavedIndex saved : {silu_, up_}) script_.forget(saved);
        script_.read(gate_);
        script_.allocate(gate_gradient);
        rest_backward("silu backward", kActivationBackward);
        script_.drop(silu_gradient);
        script_.forget(gate_);
        script_.allocate(whole);
        rest_backward("cat", kCatMlp);
        for (const Slot slot : {gate_gradient, up_gradient}) script_.drop(slot);
        return whole;
    }

    /// `gradient` receives the norm's input gradient, which is added to that of the residual path.
    void norm_backward(const char* name, const Norm& norm, Slot gradient, Slot output_gradient) {
        const Slot weight = script_.tensor(std::string(name) + " weight gradient", {kHidden});
        script_.read(norm.input_saved);
        script_.read(norm.rstd_saved);
        script_.allocate(gradient);
        script_.allocate(weight);
        rest_backward(name, kNormBackward);
        rest_backward(name, kNormWeight);
        script_.drop(output_gradient);
        script_.forget(norm.input_saved);
        script_.forget(norm.rstd_saved);
        rest_backward("accumulate weight gradient", kAccumulateNorm);
        script_.drop(weight);
        rest_backward("add", kAdd);
    }

    void attention_backward() {
        script_.part(Part::attn_proj);
        script_.commit(Module::attn_norm);
        script_.commit(Module::attn_proj);
        script_.read(proj_input_);
        script_.read(proj_weight_saved_);
        const LinearGradients proj = linear_backward("proj", kHidden, kHidden);
        script_.forget(proj_input_);
        script_.forget(proj_weight_saved_);
        accumulate(proj);
        script_.start(Module::attn_proj);
        const Slot qkv_gradient = core_attention_backward(proj.input);
        script_.part(Part::qkv_linear);
        script_.commit(Module::qkv_linear);
        script_.read(qkv_input_);
        script_.read(qkv_weight_saved_);
        const LinearGradients qkv = linear_backward("qkv", kHidden, 3 * kHidden);
        script_.drop(qkv_gradient);
        script_.forget(qkv_input_);
        script_.forget(qkv_weight_saved_);
        accumulate(qkv);
        script_.start(Module::qkv_linear);
        input_gradient(qkv.input);
    }

    /// Result: the gradient of the packed projection.
    Slot core_attention_backward(Slot output_gradient) {
        script_.part(Part::core_attn);
        script_.commit(Module::core_attn);
        for (const SavedIndex saved : attention_saved_) script_.read(saved);
        std::vector<Slot> parts;
        for (const char* name : {"q gradient", "k gradient", "v gradient"})
            parts.push_back(script_.tensor(name, kHeadShape));
        const Slot workspace = script_.tensor("cudnn backward workspace", {kWorkspaceBytes / 2});
        const Slot whole = script_.tensor("qkv gradient", {1, kTokens, 3 * kHidden});
        for (const Slot slot : parts) script_.allocate(slot);
        script_.allocate(workspace);
        rest_backward("memset", kMemsetBackward);
        for (const auto& [name, us] :
             {std::pair("output times its gradient", 35.5), std::pair("attention backward", 838.6),
              std::pair("query gradient to bf16", 30.0)})
            kernel(name, KernelClass::attention, kBackwardAttention / kLayers * us / (35.5 + 838.6 + 30.0));
        script_.drop(workspace);
        script_.drop(output_gradient);
        for (const SavedIndex saved : attention_saved_) script_.forget(saved);
        script_.start(Module::core_attn);
        if (contiguous_gradients_)
            for (Slot& part : parts) part = reshaped(part);
        script_.allocate(whole);
        rest_backward("cat", kCatQkv);
        for (const Slot slot : parts) script_.drop(slot);
        return whole;
    }

    /// A gradient of shape heads, tokens, width as tokens, heads, width.
    Slot reshaped(Slot part) {
        const Slot copy = script_.tensor("reshaped gradient", kHiddenShape);
        script_.allocate(copy);
        script_.kernel({"reshape", KernelClass::memory_bound, 0, Bytes{}, false, steady_time(kReshape / 1000)});
        script_.drop(part);
        return copy;
    }

    /// PyTorch adds in place to the output's gradient and hands that on. Here the norm's gradient is handed on instead:
    /// the same sizes at the same places of the sequence.
    void input_gradient(Slot output_gradient) {
        script_.part(Part::attn_norm);
        const Slot own = first_ ? script_.tensor("input gradient", kHiddenShape) : layers::kGradInput;
        norm_backward("attn_norm", attn_norm_, own, output_gradient);
        if (first_) script_.drop(own);
        script_.drop(layers::kGradOutput);
        script_.start(Module::attn_norm);
    }

    static constexpr std::int64_t kWorkspaceBytes = 67633408;  // as recorded

    bool first_;
    bool contiguous_gradients_;
    double gemm_time_;
    ScriptBuilder script_;
    Slot input_{}, qkv_weight_{}, proj_weight_{};
    Slot qkv_{}, seed_{}, offset_{}, softmax_{}, attention_out_{}, middle_{};
    Norm attn_norm_{}, mlp_norm_{};
    SavedIndex qkv_input_{}, qkv_weight_saved_{}, proj_input_{}, proj_weight_saved_{};
    SavedIndex fc1_input_{}, fc2_input_{}, gate_{}, up_{}, silu_{};
    std::vector<SavedIndex> attention_saved_;
};

}  // namespace

layers::LayerScript layer_script(bool first, bool contiguous_gradients, double gemm_time) {
    return LayerWriter(first, contiguous_gradients, gemm_time).write();
}

layers::LayerScript loss_script() {
    ScriptBuilder script(ScriptKind::head, "peer loss");
    script.boundary(kHiddenShape, kHiddenShape, DataType::bf16);
    auto fp32 = [&](const char* name) { return script.tensor(name, kHiddenShape, DataType::fp32); };
    auto kernel = [&](const char* name, double ms) {
        script.kernel({name, KernelClass::memory_bound, 0, Bytes{}, false, steady_time(ms)});
    };
    auto backward_kernel = [&](const char* name, double us) { kernel(name, kBackwardRest * us / kBackwardRestSum); };

    script.begin_forward(Part::loss);
    const Slot copy = fp32("fp32 copy");
    const Slot square = fp32("square");
    const Slot mean = script.tensor("mean", {1}, DataType::fp32);
    script.allocate(copy);
    kernel("to fp32", kForwardLoss * 56.1 / 116);
    script.allocate(square);
    kernel("pow", kForwardLoss * 33.7 / 116);
    const SavedIndex saved = script.save(copy);
    script.drop(copy);
    script.allocate(mean);
    kernel("memset", kForwardLoss * kMemsetForward / 116);
    kernel("mean", kForwardLoss * 26.2 / 116);
    script.drop(square);

    script.begin_backward(Part::loss);
    const Slot one = script.tensor("gradient of the loss", {1}, DataType::fp32);
    const Slot spread = fp32("div");
    const Slot power = fp32("pow backward");
    const Slot doubled = fp32("mul by two");
    const Slot gradient = fp32("fp32 gradient");
    script.allocate(one);
    backward_kernel("fill", kAccumulateNorm);
    script.allocate(spread);
    backward_kernel("div", 41.3);
    script.read(saved);
    script.allocate(power);
    backward_kernel("pow", 34.0);
    script.allocate(doubled);
    backward_kernel("mul", 33.2);
    script.allocate(gradient);
    backward_kernel("mul", 49.1);
    for (const Slot slot : {doubled, power, spread}) script.drop(slot);
    script.forget(saved);
    script.allocate(layers::kGradInput);
    backward_kernel("to bf16", kAdd);
    script.drop(gradient);
    for (const Slot slot : {one, layers::kInput, mean}) script.drop(slot);
    return script.build();
}

}  // namespace stowage::testing::peer
