#pragma once

#include <cupti.h>

#include <array>
#include <string_view>

namespace stowage::profiler {

/// The calls of NVTX that carry a name and begin something.
inline constexpr std::array kNvtxNamingCalls = {CUPTI_CBID_NVTX_nvtxMarkA,
                                                CUPTI_CBID_NVTX_nvtxMarkEx,
                                                CUPTI_CBID_NVTX_nvtxRangeStartA,
                                                CUPTI_CBID_NVTX_nvtxRangeStartEx,
                                                CUPTI_CBID_NVTX_nvtxRangePushA,
                                                CUPTI_CBID_NVTX_nvtxRangePushEx,
                                                CUPTI_CBID_NVTX_nvtxDomainMarkEx,
                                                CUPTI_CBID_NVTX_nvtxDomainRangeStartEx,
                                                CUPTI_CBID_NVTX_nvtxDomainRangePushEx};

/// The name in such a call; empty of other calls, and of names that are wide or were registered beforehand.
std::string_view message_of(CUpti_CallbackId id, const CUpti_NvtxData& data);

}  // namespace stowage::profiler
