#include "scenarios/reader/megatron_arguments_lists.hpp"

#include <utility>

namespace stowage::reader {

std::vector<std::string> list_words(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    const auto end_word = [&] {
        if (!word.empty()) words.push_back(std::move(word));
        word.clear();
    };
    for (const char letter : text) {
        const bool between = letter == ' ' || letter == ',' || letter == '\t' || letter == '\n';
        if (between)
            end_word();
        else if (letter != '[' && letter != ']' && letter != '\'' && letter != '"')
            word += letter;
    }
    end_word();
    return words;
}

}  // namespace stowage::reader
