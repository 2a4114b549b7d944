#include "executor/workload/gemm_table.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "stowage/gemm-table/1";

Json key_json(const GemmKey& key) {
    return Json{{"transpose_a", key.transpose_a},
                {"transpose_b", key.transpose_b},
                {"m", key.m},
                {"n", key.n},
                {"k", key.k},
                {"lda", key.lda},
                {"ldb", key.ldb},
                {"ldd", key.ldd},
                {"bias", key.bias},
                {"add", key.add},
                {"experts", key.experts},
                {"output", types::name_of(key.output)},
                {"factors", name_of(key.factors)}};
}

GemmFactors factors_of(const std::string& name) {
    for (const GemmFactors factors : {GemmFactors::bf16, GemmFactors::e4m3, GemmFactors::e4m3_and_e5m2})
        if (name_of(factors) == name) return factors;
    throw types::InputError(fmt::format("unknown factors '{}'", name));
}

GemmKey key_of(const Json& json) {
    GemmKey key;
    json.at("transpose_a").get_to(key.transpose_a);
    json.at("transpose_b").get_to(key.transpose_b);
    json.at("m").get_to(key.m);
    json.at("n").get_to(key.n);
    json.at("k").get_to(key.k);
    json.at("lda").get_to(key.lda);
    json.at("ldb").get_to(key.ldb);
    json.at("ldd").get_to(key.ldd);
    json.at("bias").get_to(key.bias);
    json.at("add").get_to(key.add);
    key.experts = json.value("experts", std::int64_t{1});  // files of before have none
    const auto output = json.at("output").get<std::string>();
    const auto type = types::parse_name<types::DataType>(output);
    if (!type) throw types::InputError(fmt::format("unknown data type '{}'", output));
    key.output = *type;
    key.factors = factors_of(json.value("factors", std::string("bf16")));  // files of before are all bf16
    return key;
}

Json algorithm_json(const GemmAlgorithm& algorithm) {
    return Json{{"raw", algorithm.raw},
                {"workspace_bytes", algorithm.workspace_bytes},
                {"id", algorithm.id},
                {"tile", algorithm.tile},
                {"stages", algorithm.stages},
                {"split_k", algorithm.split_k},
                {"reduction", algorithm.reduction},
                {"swizzle", algorithm.swizzle},
                {"custom", algorithm.custom},
                {"inner_shape", algorithm.inner_shape},
                {"cluster", algorithm.cluster},
                {"one_by_one", algorithm.one_by_one},
                {"measured_us", algorithm.microseconds}};
}

GemmAlgorithm algorithm_of(const Json& json) {
    GemmAlgorithm algorithm;
    json.at("raw").get_to(algorithm.raw);
    json.at("workspace_bytes").get_to(algorithm.workspace_bytes);
    json.at("id").get_to(algorithm.id);
    json.at("tile").get_to(algorithm.tile);
    json.at("stages").get_to(algorithm.stages);
    json.at("split_k").get_to(algorithm.split_k);
    json.at("reduction").get_to(algorithm.reduction);
    json.at("swizzle").get_to(algorithm.swizzle);
    json.at("custom").get_to(algorithm.custom);
    json.at("inner_shape").get_to(algorithm.inner_shape);
    json.at("cluster").get_to(algorithm.cluster);
    algorithm.one_by_one = json.value("one_by_one", false);
    json.at("measured_us").get_to(algorithm.microseconds);
    return algorithm;
}

GemmTable table_of(const Json& json, const std::string& name) {
    const auto schema = json.at("schema").get<std::string>();
    if (schema != kSchema) {
        throw types::InputError(
            fmt::format("{}: error: schema is '{}', expected '{}'\nhint: remove the file; it is "
                        "measured again",
                        name, schema, kSchema));
    }
    GemmTable table;
    json.at("device").get_to(table.platform.device);
    json.at("cublaslt_version").get_to(table.platform.cublaslt_version);
    for (const Json& entry : json.at("gemms")) {
        table.entries.emplace(key_of(entry.at("key")), algorithm_of(entry.at("algorithm")));
    }
    return table;
}

}  // namespace

std::string to_json(const GemmTable& table) {
    Json gemms = Json::array();
    for (const auto& [key, algorithm] : table.entries) {
        gemms.push_back(Json{{"key", key_json(key)}, {"algorithm", algorithm_json(algorithm)}});
    }
    const Json json{{"schema", kSchema},
                    {"device", table.platform.device},
                    {"cublaslt_version", table.platform.cublaslt_version},
                    {"gemms", gemms}};
    return json.dump(1) + "\n";
}

GemmTable gemm_table_from_json(const std::string& text, const std::string& name) {
    try {
        return table_of(Json::parse(text), name);
    } catch (const nlohmann::json::exception& error) {
        throw types::InputError(
            fmt::format("{}: error: not a table of GEMM algorithms: {}\nhint: remove the file; it "
                        "is measured again",
                        name, error.what()));
    }
}

void require_same_platform(const GemmTable& table, const GemmPlatform& here, const std::string& name) {
    if (table.platform == here) return;
    throw types::InputError(
        fmt::format("{}: error: the table was measured on '{}' with cuBLASLt {}, this is '{}' with cuBLASLt {}\nhint: "
                    "name another file, or remove this one to measure again",
                    name, table.platform.device, table.platform.cublaslt_version, here.device, here.cublaslt_version));
}

GemmTable read_gemm_table(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw types::InputError(fmt::format("{}: error: cannot be read", file.string()));
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    return gemm_table_from_json(text, file.string());
}

void write_gemm_table(const std::filesystem::path& file, const GemmTable& table) {
    std::filesystem::path partial = file;
    partial += ".partial";
    bool written = false;
    {
        std::ofstream stream(partial, std::ios::binary);
        stream << to_json(table);
        stream.close();
        written = static_cast<bool>(stream);
    }
    std::error_code failure;
    if (written) std::filesystem::rename(partial, file, failure);
    if (written && !failure) return;
    const std::string why = failure ? failure.message() : "writing failed";
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw types::InputError(
        fmt::format("{}: error: the table of GEMM algorithms cannot be written: {}", file.string(), why));
}

}  // namespace stowage::executor
