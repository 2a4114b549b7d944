#include "executor/workload/gemm_key.hpp"

#include <fmt/format.h>

#include "scenarios/types/check.hpp"

namespace stowage::executor {

using layers::Call;
using layers::CallSizes;

namespace {

GemmKey forward_key(const CallSizes& sizes) {
    GemmKey key;
    key.transpose_a = true;
    key.m = sizes.columns;
    key.n = sizes.rows;
    key.k = sizes.depth;
    key.lda = sizes.depth;
    key.ldb = sizes.depth;
    key.ldd = sizes.columns;
    key.bias = sizes.has_bias;
    key.add = sizes.has_addend;
    return key;
}

GemmKey input_gradient_key(const CallSizes& sizes) {
    GemmKey key;
    key.m = sizes.depth;
    key.n = sizes.rows;
    key.k = sizes.columns;
    key.lda = sizes.depth;
    key.ldb = sizes.columns;
    key.ldd = sizes.depth;
    return key;
}

GemmKey weight_gradient_key(const CallSizes& sizes) {
    GemmKey key;
    key.transpose_b = true;
    key.m = sizes.depth;
    key.n = sizes.columns;
    key.k = sizes.rows;
    key.lda = sizes.depth;
    key.ldb = sizes.columns;
    key.ldd = sizes.depth;
    key.output = sizes.gradient_type;
    key.add = true;
    return key;
}

/// a, weight, [bias], [addend], y, workspace
GemmOperands forward_operands(const CallSizes& sizes) {
    GemmOperands operands;
    operands.b = 0;
    operands.a = 1;
    std::size_t next = 2;
    if (sizes.has_bias) operands.bias = next++;
    if (sizes.has_addend) operands.c = next++;
    operands.d = next++;
    if (!sizes.has_addend) operands.c = operands.d;
    operands.workspace = next;
    return operands;
}

}  // namespace

bool is_gemm(Call call) {
    return call == Call::linear_forward || call == Call::linear_input_gradient || call == Call::linear_weight_gradient;
}

GemmKey gemm_key(Call call, const CallSizes& sizes) {
    STOWAGE_CHECK(sizes.rows > 0 && sizes.columns > 0 && sizes.depth > 0, "a linear layer with an empty matrix");
    STOWAGE_CHECK(is_gemm(call), "only linear layers are matrix products");
    if (call == Call::linear_forward) return forward_key(sizes);
    return call == Call::linear_input_gradient ? input_gradient_key(sizes) : weight_gradient_key(sizes);
}

GemmOperands gemm_operands(Call call, const CallSizes& sizes) {
    STOWAGE_CHECK(is_gemm(call), "only linear layers are matrix products");
    if (call == Call::linear_forward) return forward_operands(sizes);
    GemmOperands operands;
    const bool input = call == Call::linear_input_gradient;
    operands.a = 1;  // weight, or the layer's input
    operands.b = 0;  // dy
    operands.c = 2;
    operands.d = 2;
    operands.workspace = 3;
    STOWAGE_CHECK(input || call == Call::linear_weight_gradient, "one of the two gradients");
    return operands;
}

std::string to_string(const GemmKey& key) {
    return fmt::format("{} {} {} x {} x {} {}{}{}", key.transpose_a ? 'T' : 'N', key.transpose_b ? 'T' : 'N', key.m,
                       key.n, key.k, types::name_of(key.output), key.bias ? " + bias" : "", key.add ? " + C" : "");
}

double flops(const GemmKey& key) {
    return 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
}

}  // namespace stowage::executor
