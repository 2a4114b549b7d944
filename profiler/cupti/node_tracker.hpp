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
    /// Keeps a reference.
    explicit NodeTracker(CuptiApi& cupti) : cupti_(cupti) {}

    void push(OperationNumber operation);
    /// No if nothing is pushed on this thread.
    bool pop();
    [[nodiscard]] NodeOperations operations() const;

    /// For CUPTI's callbacks: nodes made and made from others; everything else is passed over.
    void notice(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);

private:
    void created(CUgraphNode node);
    void cloned(CUgraphNode original, CUgraphNode node);
    [[nodiscard]] OperationNumber current() const;

    CuptiApi& cupti_;
    mutable std::mutex mutex_;
    std::map<std::thread::id, std::vector<OperationNumber>> pushed_;
    NodeOperations operations_;
};

}  // namespace stowage::profiler
