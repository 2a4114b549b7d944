#include "profiler/cupti/node_tracker.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace stowage::profiler {

void NodeTracker::push(OperationNumber operation) {
    const std::scoped_lock lock(mutex_);
    pushed_[std::this_thread::get_id()].push_back(operation);
}

bool NodeTracker::pop() {
    const std::scoped_lock lock(mutex_);
    const auto found = pushed_.find(std::this_thread::get_id());
    if (found == pushed_.end()) return false;
    found->second.pop_back();
    if (found->second.empty()) pushed_.erase(found);
    return true;
}

NodeOperations NodeTracker::operations() const {
    const std::scoped_lock lock(mutex_);
    return operations_;
}

OperationNumber NodeTracker::current() const {
    const std::scoped_lock lock(mutex_);
    const auto found = pushed_.find(std::this_thread::get_id());
    return found == pushed_.end() ? kNoOperation : found->second.back();
}

void NodeTracker::notice(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    if (domain != CUPTI_CB_DOMAIN_RESOURCE || data == nullptr) return;
    if (id != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && id != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) return;
    const auto* resource = static_cast<const CUpti_ResourceData*>(data);
    const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
    if (graph == nullptr) return;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED)
        created(graph->node);
    else
        cloned(graph->originalNode, graph->node);
}

void NodeTracker::keep(std::uint64_t node, std::uint64_t original) {
    if (!keep_nodes_) return;
    std::uint64_t now = 0;
    if (cupti_.timestamp(&now) != CUPTI_SUCCESS) now = 0;
    const GraphNode made = {.node = node,
                            .original = original,
                            .thread = static_cast<std::uint32_t>(syscall(SYS_gettid)),
                            .made = types::Nanoseconds(static_cast<std::int64_t>(now))};
    const std::scoped_lock lock(mutex_);
    nodes_.push_back(made);
}

std::vector<GraphNode> NodeTracker::nodes() const {
    const std::scoped_lock lock(mutex_);
    return nodes_;
}

// While a graph is made executable CUPTI may report its new nodes as created too, before or after it reports them as
// cloned. What is known by cloning stands.
void NodeTracker::created(CUgraphNode node) {
    const OperationNumber operation = current();
    if (operation == kNoOperation && !keep_nodes_) return;
    std::uint64_t id = 0;
    if (cupti_.graph_node_id(node, &id) != CUPTI_SUCCESS) return;
    keep(id, 0);
    if (operation == kNoOperation) return;
    const std::scoped_lock lock(mutex_);
    operations_.try_emplace(id, operation);
}

void NodeTracker::cloned(CUgraphNode original, CUgraphNode node) {
    std::uint64_t original_id = 0;
    std::uint64_t id = 0;
    if (cupti_.graph_node_id(original, &original_id) != CUPTI_SUCCESS) return;
    if (cupti_.graph_node_id(node, &id) != CUPTI_SUCCESS) return;
    keep(id, original_id);
    const std::scoped_lock lock(mutex_);
    if (const auto found = operations_.find(original_id); found != operations_.end())
        operations_.insert_or_assign(id, OperationNumber{found->second});
    else
        operations_.erase(id);  // made under nothing of ours, whatever is pushed while it is cloned
}

}  // namespace stowage::profiler
