#include <iostream>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/bytes.hpp"

// 1 MiB and a tensor of 512 x 512 bf16 elements: 1048576 + 512 * 512 * 2 = 1572864 bytes.
int main() {
    using namespace stowage::types::literals;
    const stowage::layers::Tensor tensor{"x", {512, 512}, stowage::types::DataType::bf16};
    std::cout << (1_MiB + tensor.bytes()).count << " bytes\n";
}
