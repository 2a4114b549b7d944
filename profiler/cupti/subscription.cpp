#include "profiler/cupti/subscription.hpp"

#include "profiler/cupti/expect.hpp"

namespace stowage::profiler {

Subscription::Subscription(CuptiApi& cupti, CUpti_CallbackFunc callback, void* context) : cupti_(cupti) {
    expect(cupti, cupti.subscribe(&handle_, callback, context), "cuptiSubscribe");
}

Subscription::~Subscription() {
    for (const auto& [domain, id] : enabled_) static_cast<void>(cupti_.enable_callback(false, handle_, domain, id));
    static_cast<void>(cupti_.unsubscribe(handle_));
}

void Subscription::enable(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    enabled_.emplace_back(domain, id);  // first, so that a failure undoes this one too
    expect(cupti_, cupti_.enable_callback(true, handle_, domain, id), "cuptiEnableCallback");
}

}  // namespace stowage::profiler
