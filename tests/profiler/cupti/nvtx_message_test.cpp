#include "profiler/cupti/nvtx_message.hpp"

#include <generated_nvtx_meta.h>
#include <gtest/gtest.h>

namespace stowage::profiler {
namespace {

std::string_view message(CUpti_CallbackId id, const void* parameters) {
    CUpti_NvtxData data{};
    data.functionParams = parameters;
    return message_of(id, data);
}

TEST(NvtxMessage, ReadsPlainNames) {
    const nvtxMarkA_params mark{"one"};
    const nvtxRangePushA_params push{"two"};
    const nvtxRangeStartA_params start{"three"};
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxMarkA, &mark), "one");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxRangePushA, &push), "two");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxRangeStartA, &start), "three");
}

TEST(NvtxMessage, ReadsNamesInAttributesWithAndWithoutADomain) {
    nvtxEventAttributes_t attributes{};
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = "four";
    const nvtxMarkEx_params mark{&attributes};
    const nvtxRangePushEx_params push{&attributes};
    const nvtxRangeStartEx_params start{&attributes};
    const nvtxDomainMarkEx_params domain_mark{nullptr, mark};
    const nvtxDomainRangePushEx_params domain_push{nullptr, push};
    const nvtxDomainRangeStartEx_params domain_start{nullptr, start};
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxMarkEx, &mark), "four");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxRangePushEx, &push), "four");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxRangeStartEx, &start), "four");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxDomainMarkEx, &domain_mark), "four");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxDomainRangePushEx, &domain_push), "four");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxDomainRangeStartEx, &domain_start), "four");
}

TEST(NvtxMessage, IsEmptyOfWhatItCannotRead) {
    nvtxEventAttributes_t attributes{};
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    const nvtxMarkEx_params registered{&attributes};
    const nvtxMarkEx_params none{nullptr};
    const nvtxMarkA_params null{nullptr};
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxMarkEx, &registered), "");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxMarkEx, &none), "");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxMarkA, &null), "");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxRangePop, &null), "");
    EXPECT_EQ(message(CUPTI_CBID_NVTX_nvtxMarkA, nullptr), "");
}

}  // namespace
}  // namespace stowage::profiler
