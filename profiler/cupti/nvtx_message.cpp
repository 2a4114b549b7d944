#include "profiler/cupti/nvtx_message.hpp"

#include <generated_nvtx_meta.h>

namespace stowage::profiler {
namespace {

std::string_view text_of(const char* text) { return text == nullptr ? std::string_view() : std::string_view(text); }

std::string_view text_of(const nvtxEventAttributes_t* attributes) {
    if (attributes == nullptr || attributes->messageType != NVTX_MESSAGE_TYPE_ASCII) return {};
    return text_of(attributes->message.ascii);
}

template <class Parameters>
const Parameters& as(const CUpti_NvtxData& data) {
    return *static_cast<const Parameters*>(data.functionParams);
}

}  // namespace

std::string_view message_of(CUpti_CallbackId id, const CUpti_NvtxData& data) {
    if (data.functionParams == nullptr) return {};
    switch (id) {
        case CUPTI_CBID_NVTX_nvtxMarkA: return text_of(as<nvtxMarkA_params>(data).message);
        case CUPTI_CBID_NVTX_nvtxRangeStartA: return text_of(as<nvtxRangeStartA_params>(data).message);
        case CUPTI_CBID_NVTX_nvtxRangePushA: return text_of(as<nvtxRangePushA_params>(data).message);
        case CUPTI_CBID_NVTX_nvtxMarkEx: return text_of(as<nvtxMarkEx_params>(data).eventAttrib);
        case CUPTI_CBID_NVTX_nvtxRangeStartEx: return text_of(as<nvtxRangeStartEx_params>(data).eventAttrib);
        case CUPTI_CBID_NVTX_nvtxRangePushEx: return text_of(as<nvtxRangePushEx_params>(data).eventAttrib);
        case CUPTI_CBID_NVTX_nvtxDomainMarkEx: return text_of(as<nvtxDomainMarkEx_params>(data).core.eventAttrib);
        case CUPTI_CBID_NVTX_nvtxDomainRangeStartEx:
            return text_of(as<nvtxDomainRangeStartEx_params>(data).core.eventAttrib);
        case CUPTI_CBID_NVTX_nvtxDomainRangePushEx:
            return text_of(as<nvtxDomainRangePushEx_params>(data).core.eventAttrib);
        default: return {};
    }
}

}  // namespace stowage::profiler
