#pragma once

#include <utility>
#include <vector>

#include "profiler/cupti/cupti_api.hpp"

namespace stowage::profiler {

/// CUPTI's one subscription, and the callbacks that are on; gone, both are undone.
class Subscription {
public:
    /// `context` is handed to `callback`. Throws: CuptiError.
    Subscription(CuptiApi& cupti, CUpti_CallbackFunc callback, void* context);
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;
    Subscription(Subscription&&) = delete;
    Subscription& operator=(Subscription&&) = delete;
    ~Subscription();

    /// Throws: CuptiError.
    void enable(CUpti_CallbackDomain domain, CUpti_CallbackId id);

private:
    CuptiApi& cupti_;
    CUpti_SubscriberHandle handle_ = nullptr;
    std::vector<std::pair<CUpti_CallbackDomain, CUpti_CallbackId>> enabled_;
};

}  // namespace stowage::profiler
