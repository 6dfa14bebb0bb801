// Values out of archives and messages.
#include <array>
#include <cereal/types/array.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "fuzz/harness.h"
#include "retinue/ipc/barrier.h"
#include "retinue/ipc/detail/message_codec.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/shared_value.h"

namespace retinue::fuzz {
namespace {

struct Node {
  std::int16_t id = 0;
  std::unique_ptr<Node> next;
  std::shared_ptr<std::string> name;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(id), next, name);
  }
};

void check(const SharedBlock& block) {
  Job::instance().check(block);
}

/// What was read can be written, and reads back as the same: a shorter archive is the whole truth about the value.
template <class T>
void decode(std::string_view bytes) {
  try {
    T value;
    detail::decode_value(bytes, value);
    const detail::Encoded encoded = detail::encode_value(value);
    for (const SharedBlock& block : encoded.references) check(block);
    T again;
    detail::decode_value(encoded.bytes, again);
    require(detail::encode_value(again).bytes == encoded.bytes, "a value that changes by being archived");
  } catch (const cereal::Exception&) {
    // It ends too early, or has more elements than bytes.
  } catch (const UsageError&) {
    // A block that is gone, or something else than it should be.
  }
}

/// Of a call's archive, which may have rows in blocks of their own.
template <class T>
void decode_call(std::string_view bytes) {
  try {
    T value;
    detail::ValueInput(bytes, detail::Purpose::kCall)(value);
    detail::ValueInput rows(bytes, detail::Purpose::kCall);
    for (std::uint64_t count = 0;; count = 0) {
      rows(count);
      require(rows.read_row<double>(count).size() == count, "a row of another length");
    }
  } catch (const cereal::Exception&) {
  } catch (const UsageError&) {
    // As above.
  }
}

using Decode = void (*)(std::string_view);
constexpr Decode kValues[] = {
    decode<std::string>,
    decode<std::vector<int>>,
    decode<std::vector<bool>>,
    decode<std::vector<std::string>>,
    decode<std::map<std::string, std::vector<double>>>,
    decode<std::optional<std::pair<int, std::string>>>,
    decode<std::variant<int, std::string, std::vector<bool>>>,
    decode<std::tuple<bool, std::int8_t, std::u16string>>,
    decode<std::vector<std::vector<std::vector<std::uint8_t>>>>,
    decode<std::array<std::optional<float>, 3>>,
    decode<std::unique_ptr<Node>>,
    decode<std::map<int, std::shared_ptr<std::string>>>,
    decode<SharedBlock>,
    decode<std::vector<SharedBlock>>,
    decode<std::map<int, SharedBlock>>,
    decode<Queue<std::string>>,
    decode<std::pair<Queue<int>, Queue<std::string>>>,
    decode<Lock>,
    decode<Value<int>>,
    decode<Array<double>>,
    decode<std::vector<Barrier>>,
    decode_call<std::vector<std::uint8_t>>,
    decode_call<std::tuple<int, std::vector<double>, std::string>>,
};

struct Plain {
  std::int32_t id;
  double values[3];
};

template <class T>
void take(Bytes bytes) {
  try {
    const T value = detail::value_of_bytes<T>(bytes);
    if constexpr (detail::kIsPlainRow<T>) {
      require(detail::plain_bytes(value).size() == bytes.size(), "a row of another size than its message");
    } else if constexpr (std::is_same_v<T, bool>) {
      require(static_cast<int>(value) <= 1, "a bool that is neither true nor false");
    }
  } catch (const cereal::Exception&) {
  } catch (const UsageError&) {
    // As above.
  }
}

using Take = void (*)(Bytes);
constexpr Take kMessages[] = {take<bool>,
                              take<int>,
                              take<std::uint64_t>,
                              take<Plain>,
                              take<std::string>,
                              take<std::vector<Plain>>,
                              take<std::vector<std::array<std::byte, 3>>>,
                              take<std::map<std::string, std::string>>,
                              take<std::vector<SharedBlock>>,
                              take<std::vector<std::string>>};

}  // namespace

void archive(Bytes bytes) {
  Input input(bytes);
  const Decode& decode = kValues[input.number<std::uint8_t>() % std::size(kValues)];
  const std::string text = Job::instance().with_handles(input.rest());
  without_leaks([&] { decode(text); });
}

void message(Bytes bytes) {
  Input input(bytes);
  const Take& take = kMessages[input.number<std::uint8_t>() % std::size(kMessages)];
  const std::string text = Job::instance().with_handles(input.rest());
  without_leaks([&] { take(std::as_bytes(std::span(text))); });
}

}  // namespace retinue::fuzz
