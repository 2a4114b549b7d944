#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "profiler/cupti/activity.hpp"
#include "profiler/cupti/cupti_api.hpp"

namespace stowage::profiler {

/// Knows which operation each thread is at, and so under which one the nodes of graphs are made. An executable graph
/// has nodes of its own, made from those of its graph: they belong to the same operations.
/// Safe to use from several threads; no lock is held while CUPTI is called.
class NodeTracker {
public:
    /// Keeps a reference. With `keep_nodes` it also knows when and by which thread every node was made.
    NodeTracker(CuptiApi& cupti, bool keep_nodes) : cupti_(cupti), keep_nodes_(keep_nodes) {}

    void push(OperationNumber operation);
    /// No if nothing is pushed on this thread.
    bool pop();
    [[nodiscard]] NodeOperations operations() const;
    /// Of every node that was made, in the order of making; none unless they are kept.
    [[nodiscard]] std::vector<GraphNode> nodes() const;

    /// For CUPTI's callbacks: nodes made and made from others; everything else is passed over.
    void notice(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);

private:
    void created(CUgraphNode node);
    void cloned(CUgraphNode original, CUgraphNode node);
    void keep(std::uint64_t node, std::uint64_t original);
    [[nodiscard]] OperationNumber current() const;

    CuptiApi& cupti_;
    const bool keep_nodes_;
    mutable std::mutex mutex_;
    std::map<std::thread::id, std::vector<OperationNumber>> pushed_;
    NodeOperations operations_;
    std::vector<GraphNode> nodes_;
};

}  // namespace stowage::profiler
