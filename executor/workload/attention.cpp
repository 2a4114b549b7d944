// The only file that includes the cuDNN frontend, which is large.

#include "executor/workload/attention.hpp"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "executor/cuda/check.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

namespace graph = cudnn_frontend::graph;
using cudnn_frontend::DataType_t;
using layers::Call;
using layers::CallSizes;
using Tensor = std::shared_ptr<graph::Tensor_attributes>;

constexpr std::size_t kOldestVersion = 90100;  // set_deterministic_algorithm, grouped queries, strided views

std::string version_text() {
    const std::size_t version = cudnnGetVersion();
    return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void check_cudnn(cudnnStatus_t status, std::string_view doing,
                 std::source_location where = std::source_location::current()) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    throw DeviceError(fmt::format("{}: {}, while {}, on {} ({}:{})", version_text(), cudnnGetErrorString(status), doing,
                                  current_device_text(), where.file_name(), where.line()));
}

struct HandleRelease {
    void operator()(cudnnContext* handle) const noexcept { cudnnDestroy(handle); }
};
using Handle = std::unique_ptr<cudnnContext, HandleRelease>;

Handle make_handle() {
    if (cudnnGetVersion() < kOldestVersion) {
        throw DeviceError(fmt::format("{} is too old: attention needs cuDNN 9.1.0 or newer", version_text()));
    }
    cudnnHandle_t handle = nullptr;
    check_cudnn(cudnnCreate(&handle), "starting cuDNN");
    return Handle(handle);
}

/// The shape of one launch: `heads` and `groups` of a packed row that has `all_heads` and `all_groups`, for `batch` of
/// the sequences whose rows alternate.
struct Shape {
    std::int64_t all_batch = 0;
    std::int64_t batch = 0;
    std::int64_t sequence = 0;
    std::int64_t all_heads = 0;
    std::int64_t all_groups = 0;
    std::int64_t heads = 0;
    std::int64_t groups = 0;
    std::int64_t head_size = 0;
    std::int64_t value_size = 0;
    double scale = 0;

    [[nodiscard]] std::int64_t packed_width() const {
        return (all_heads + all_groups) * head_size + all_groups * value_size;
    }
    [[nodiscard]] std::int64_t output_width() const { return all_heads * value_size; }
};

/// Of `heads` of `size` elements.
std::vector<std::int64_t> dimensions(const Shape& shape, std::int64_t heads, std::int64_t size) {
    return {shape.batch, heads, shape.sequence, size};
}

/// Of [batch, head, place, element] in rows of `width` elements, with heads of `size`.
std::vector<std::int64_t> strides(const Shape& shape, std::int64_t width, std::int64_t size) {
    return {width, size, shape.all_batch * width, 1};
}

enum Uid : std::int64_t { kQuery = 1, kKey, kValue, kOutput, kStatistics, kGradient, kDQuery, kDKey, kDValue };

Tensor input(graph::Graph& made, const char* name, Uid uid, const std::vector<std::int64_t>& dims,
             const std::vector<std::int64_t>& strided) {
    return made.tensor(graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(dims).set_stride(strided));
}

void mark_output(const Tensor& tensor, Uid uid, const std::vector<std::int64_t>& dims,
                 const std::vector<std::int64_t>& strided) {
    tensor->set_output(true).set_uid(uid).set_dim(dims).set_stride(strided);
}

std::vector<std::int64_t> statistics_dimensions(const Shape& shape) {
    return {shape.batch, shape.heads, shape.sequence, 1};
}
/// Packed, as cuDNN demands: hence one sequence at a time where the heads are launched in parts.
std::vector<std::int64_t> statistics_strides(const Shape& shape) {
    return {shape.heads * shape.sequence, shape.sequence, 1, 1};
}

std::shared_ptr<graph::Graph> empty_graph() {
    auto made = std::make_shared<graph::Graph>();
    made->set_io_data_type(DataType_t::BFLOAT16)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
    return made;
}

std::shared_ptr<graph::Graph> forward_graph(const Shape& shape) {
    auto made = empty_graph();
    const auto packed = strides(shape, shape.packed_width(), shape.head_size);
    const auto packed_values = strides(shape, shape.packed_width(), shape.value_size);
    const Tensor query = input(*made, "query", kQuery, dimensions(shape, shape.heads, shape.head_size), packed);
    const Tensor key = input(*made, "key", kKey, dimensions(shape, shape.groups, shape.head_size), packed);
    const Tensor value =
        input(*made, "value", kValue, dimensions(shape, shape.groups, shape.value_size), packed_values);
    auto attributes = graph::SDPA_attributes()
                          .set_name("attention")
                          .set_generate_stats(true)
                          .set_causal_mask(true)
                          .set_attn_scale(static_cast<float>(shape.scale));
    const auto [output, statistics] = made->sdpa(query, key, value, attributes);
    mark_output(output, kOutput, dimensions(shape, shape.heads, shape.value_size),
                strides(shape, shape.output_width(), shape.value_size));
    mark_output(statistics, kStatistics, statistics_dimensions(shape), statistics_strides(shape));
    statistics->set_data_type(DataType_t::FLOAT);
    return made;
}

std::shared_ptr<graph::Graph> backward_graph(const Shape& shape) {
    auto made = empty_graph();
    const auto packed = strides(shape, shape.packed_width(), shape.head_size);
    const auto packed_values = strides(shape, shape.packed_width(), shape.value_size);
    const auto plain = strides(shape, shape.output_width(), shape.value_size);
    const auto query_dims = dimensions(shape, shape.heads, shape.head_size);
    const auto key_dims = dimensions(shape, shape.groups, shape.head_size);
    const auto value_dims = dimensions(shape, shape.groups, shape.value_size);
    const auto output_dims = dimensions(shape, shape.heads, shape.value_size);
    const Tensor query = input(*made, "query", kQuery, query_dims, packed);
    const Tensor key = input(*made, "key", kKey, key_dims, packed);
    const Tensor value = input(*made, "value", kValue, value_dims, packed_values);
    const Tensor output = input(*made, "output", kOutput, output_dims, plain);
    const Tensor gradient = input(*made, "gradient", kGradient, output_dims, plain);
    const Tensor statistics =
        input(*made, "statistics", kStatistics, statistics_dimensions(shape), statistics_strides(shape));
    statistics->set_data_type(DataType_t::FLOAT);
    auto attributes = graph::SDPA_backward_attributes()
                          .set_name("attention_backward")
                          .set_causal_mask(true)
                          .set_attn_scale(static_cast<float>(shape.scale))
                          .set_deterministic_algorithm(true);
    const auto [d_query, d_key, d_value] =
        made->sdpa_backward(query, key, value, output, gradient, statistics, attributes);
    mark_output(d_query, kDQuery, query_dims, packed);
    mark_output(d_key, kDKey, key_dims, packed);
    mark_output(d_value, kDValue, value_dims, packed_values);
    return made;
}

std::string text_of(Call call, const Shape& shape) {
    return fmt::format("{} of {} x {} tokens, {} heads in {} groups of {}, values of {}, {}", layers::name_of(call),
                       shape.batch, shape.sequence, shape.heads, shape.groups, shape.head_size, shape.value_size,
                       call == Call::attention_backward ? "deterministic" : "causal");
}

struct Plan {
    std::shared_ptr<graph::Graph> graph;
    std::int64_t workspace_bytes = 0;
};

Plan build(cudnnHandle_t handle, Call call, const Shape& shape) {
    Plan plan{call == Call::attention_forward ? forward_graph(shape) : backward_graph(shape), 0};
    auto status = plan.graph->build(handle, {cudnn_frontend::HeurMode_t::A});
    if (status.is_good()) status = plan.graph->get_workspace_size(plan.workspace_bytes);
    if (status.is_good()) return plan;
    throw DeviceError(fmt::format("{} cannot run {}: {}, on {}", version_text(), text_of(call, shape),
                                  status.get_message(), current_device_text()));
}

struct PlanKey {
    bool backward = false;
    std::int64_t batch = 0;
    std::int64_t sequence = 0;
    std::int64_t heads = 0;
    std::int64_t groups = 0;
    std::int64_t head_size = 0;
    std::int64_t value_size = 0;
    double scale = 0;
    std::int64_t workspace_bytes = 0;
    friend auto operator<=>(const PlanKey&, const PlanKey&) = default;
};

std::int64_t value_size(const CallSizes& sizes) { return sizes.value_size > 0 ? sizes.value_size : sizes.head_size; }

PlanKey key_of(Call call, const CallSizes& sizes) {
    return {call == Call::attention_backward,
            sizes.batch,
            sizes.sequence,
            sizes.heads,
            sizes.groups,
            sizes.head_size,
            value_size(sizes),
            sizes.value,
            sizes.workspace_bytes};
}

struct Ready {
    Plan plan;
    Shape shape;
    AttentionWorkspace workspace;
};

Shape shape_of(const CallSizes& sizes, std::int64_t parts) {
    return {sizes.batch,         parts == 1 ? sizes.batch : 1, sizes.sequence,  sizes.heads,       sizes.groups,
            sizes.heads / parts, sizes.groups / parts,         sizes.head_size, value_size(sizes), sizes.value};
}

/// The fewest parts, more than `parts`, that would fit if workspace grew with heads; none if groups cannot be split so.
std::int64_t next_parts(const CallSizes& sizes, std::int64_t parts, std::int64_t needed) {
    const std::int64_t given = std::max<std::int64_t>(sizes.workspace_bytes, 1);
    const std::int64_t wanted = std::max(parts + 1, (parts * needed + given - 1) / given);
    for (std::int64_t next = wanted; next <= sizes.groups; ++next) {
        if (sizes.groups % next == 0) return next;
    }
    return parts < sizes.groups ? sizes.groups : 0;
}

[[noreturn]] void refuse(Call call, const Shape& shape, std::int64_t needed, std::int64_t given) {
    throw DeviceError(fmt::format("{} needs {} bytes of workspace for {}, the program gives {}", version_text(), needed,
                                  text_of(call, shape), given));
}

Ready make_ready(cudnnHandle_t handle, Call call, const CallSizes& sizes) {
    std::int64_t whole = 0;
    for (std::int64_t parts = 1;;) {
        Ready ready{{}, shape_of(sizes, parts), {}};
        ready.plan = build(handle, call, ready.shape);
        const std::int64_t needed = ready.plan.workspace_bytes;
        if (parts == 1) whole = needed;
        ready.workspace = {whole, needed, parts};
        if (needed <= sizes.workspace_bytes) return ready;
        const std::int64_t next = next_parts(sizes, parts, needed);
        if (next == 0) refuse(call, ready.shape, needed, sizes.workspace_bytes);
        parts = next;
    }
}

void check_sizes(Call call, const CallSizes& sizes) {
    STOWAGE_CHECK(is_attention(call), "only the two calls of attention");
    STOWAGE_CHECK(sizes.batch > 0 && sizes.sequence > 0 && sizes.rows == sizes.batch * sizes.sequence,
                  "rows of attention are batch times sequence");
    STOWAGE_CHECK(sizes.groups > 0 && sizes.heads % sizes.groups == 0, "heads share groups evenly");
    STOWAGE_CHECK(sizes.value > 0, "attention has a scale");
}

using Pointers = std::unordered_map<std::int64_t, void*>;

void* at(void* base, std::int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }

/// Queries, keys and values of one part in a packed buffer.
void add_packed(Pointers& pointers, void* packed, const Shape& shape, std::int64_t part, std::array<Uid, 3> uids) {
    const std::int64_t head_bytes = 2 * shape.head_size;
    const std::int64_t group = part * shape.groups;
    pointers[uids[0]] = at(packed, part * shape.heads * head_bytes);
    pointers[uids[1]] = at(packed, (shape.all_heads + group) * head_bytes);
    pointers[uids[2]] = at(packed, (shape.all_heads + shape.all_groups) * head_bytes + group * 2 * shape.value_size);
}

/// forward: packed, o, statistics, workspace. backward: packed, o, statistics, do, packed gradient, workspace.
/// Launch number `launch`: the parts of the first sequence, then those of the next one.
Pointers pointers_of(Call call, const Shape& shape, std::int64_t launch, std::span<void* const> buffers) {
    Pointers pointers;
    const std::int64_t parts = shape.all_heads / shape.heads;
    const std::int64_t part = launch % parts;
    const std::int64_t sequence = launch / parts;
    const std::int64_t output_bytes = 2 * (part * shape.heads * shape.value_size + sequence * shape.output_width());
    const auto statistics_bytes =
        static_cast<std::int64_t>(sizeof(float)) * (sequence * shape.all_heads + part * shape.heads) * shape.sequence;
    void* const packed = at(buffers[0], 2 * sequence * shape.packed_width());
    add_packed(pointers, packed, shape, part, {kQuery, kKey, kValue});
    pointers[kOutput] = at(buffers[1], output_bytes);
    pointers[kStatistics] = at(buffers[2], statistics_bytes);
    if (call == Call::attention_forward) return pointers;
    pointers[kGradient] = at(buffers[3], output_bytes);
    void* const packed_gradient = at(buffers[4], 2 * sequence * shape.packed_width());
    add_packed(pointers, packed_gradient, shape, part, {kDQuery, kDKey, kDValue});
    return pointers;
}

}  // namespace

struct Attention::State {
    Handle handle;
    std::map<PlanKey, Ready> ready;
};

Attention::Attention() : state_(std::make_unique<State>()) {}
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;
Attention::~Attention() = default;

AttentionWorkspace Attention::prepare(Call call, const CallSizes& sizes) {
    check_sizes(call, sizes);
    if (!state_->handle) state_->handle = make_handle();
    const PlanKey key = key_of(call, sizes);
    auto found = state_->ready.find(key);
    if (found == state_->ready.end()) {
        found = state_->ready.emplace(key, make_ready(state_->handle.get(), call, sizes)).first;
    }
    return found->second.workspace;
}

void Attention::launch(Call call, const CallSizes& sizes, std::span<void* const> buffers, cudaStream_t stream) {
    STOWAGE_CHECK(buffers.size() == (call == Call::attention_forward ? 4U : 6U), "operands of attention");
    const auto found = state_->ready.find(key_of(call, sizes));
    STOWAGE_CHECK(found != state_->ready.end(), "attention that was not prepared");
    const Ready& ready = found->second;
    check_cudnn(cudnnSetStream(state_->handle.get(), stream), "choosing cuDNN's stream");
    const std::int64_t launches = ready.workspace.parts * (ready.shape.all_batch / ready.shape.batch);
    for (std::int64_t launch = 0; launch < launches; ++launch) {
        Pointers pointers = pointers_of(call, ready.shape, launch, buffers);
        auto status = ready.plan.graph->execute(state_->handle.get(), pointers, buffers.back());
        if (status.is_good()) continue;
        throw DeviceError(fmt::format("{}: {}, while launching {}, on {}", version_text(), status.get_message(),
                                      text_of(call, ready.shape), current_device_text()));
    }
}

}  // namespace stowage::executor
