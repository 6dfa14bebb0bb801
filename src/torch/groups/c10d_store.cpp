#include "retinue/torch/c10d_store.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

std::vector<std::uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

/// `deadline`: of a call that waits. Some of c10d's stores tell its end from other errors by their text alone.
template <class Call>
auto translated(Call call, Deadline deadline = Deadline::never()) {
  try {
    return call();
  } catch (const c10::DistNetworkError& error) {
    throw Closed(c10::str("the c10d store: ", error.what_without_backtrace()));
  } catch (const c10::DistStoreError& error) {
    throw TimeoutError(c10::str("the c10d store: ", error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    const std::string text = c10::str("the c10d store: ", error.what_without_backtrace());
    if (deadline.passed()) throw TimeoutError(text);
    throw Error(text);
  }
}

/// Looks for keys again and again: c10d's own wait, where its time is over, says so on standard error.
void await_keys(c10d::Store& store, const std::vector<std::string>& keys, Deadline deadline) {
  constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(1);
  constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(50);
  for (auto pause = kShortest; !store.check(keys); pause = std::min(pause * 2, kLongest)) {
    if (deadline.passed())
      throw TimeoutError(
          c10::str("the c10d store: not all of the keys ", at::ArrayRef<std::string>(keys), " were set in time"));
    std::this_thread::sleep_for(deadline.left(pause));
  }
}

/// A store of ours as c10d's.
class StoreForC10d final : public c10d::Store {
 public:
  using Keys = std::vector<std::string>;
  using Value = std::vector<std::uint8_t>;

  explicit StoreForC10d(std::shared_ptr<retinue::Store> store)
      : c10d::Store(std::chrono::ceil<std::chrono::milliseconds>(store->timeout())), store_(std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<StoreForC10d>(store_); }
  void set(const std::string& key, const Value& value) override { store_->set(key, text_of(value), deadline()); }
  Value compareSet(const std::string& key, const Value& expected, const Value& desired) override {
    return bytes_of(store_->compare_set(key, text_of(expected), text_of(desired), deadline()));
  }
  Value get(const std::string& key) override { return bytes_of(store_->get(key, deadline())); }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return store_->add(key, delta, deadline()); }
  bool deleteKey(const std::string& key) override { return store_->delete_key(key, deadline()); }
  bool check(const Keys& keys) override { return store_->check(keys, deadline()); }
  std::int64_t getNumKeys() override { return store_->num_keys(deadline()); }
  void wait(const Keys& keys) override { store_->wait(keys, deadline()); }
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, deadline_after(timeout));
  }

 private:
  /// Of c10d's timeouts 0 means none.
  static Deadline deadline_after(std::chrono::milliseconds timeout) {
    return timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  }
  Deadline deadline() const { return deadline_after(getTimeout()); }

  std::shared_ptr<retinue::Store> store_;
};

}  // namespace

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store)
    : Store(store ? std::chrono::nanoseconds(store->getTimeout()) : kDefaultTimeout), store_(std::move(store)) {
  if (!store_) throw UsageError("C10dStore: the store is null");
}

void C10dStore::do_set(std::string_view key, std::string_view value, Deadline /*deadline*/) {
  translated([&] { store_->set(std::string(key), bytes_of(value)); });
}

std::vector<std::string> C10dStore::do_multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  if (keys.empty()) return {};
  return translated(
      [&] {
        await_keys(*store_, keys, deadline);
        std::vector<std::string> values;
        if (store_->hasExtendedApi()) {
          for (const auto& value : store_->multiGet(keys)) values.push_back(text_of(value));
        } else {
          for (const std::string& key : keys) values.push_back(text_of(store_->get(key)));
        }
        return values;
      },
      deadline);
}

std::int64_t C10dStore::do_add(std::string_view key, std::int64_t delta, Deadline /*deadline*/) {
  return translated([&] { return store_->add(std::string(key), delta); });
}

std::string C10dStore::do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                      Deadline /*deadline*/) {
  return translated(
      [&] { return text_of(store_->compareSet(std::string(key), bytes_of(expected), bytes_of(desired))); });
}

void C10dStore::do_wait(const std::vector<std::string>& keys, Deadline deadline) {
  if (!keys.empty()) translated([&] { await_keys(*store_, keys, deadline); }, deadline);
}

bool C10dStore::do_check(const std::vector<std::string>& keys, Deadline /*deadline*/) {
  return translated([&] { return store_->check(keys); });
}

bool C10dStore::do_delete_key(std::string_view key, Deadline /*deadline*/) {
  return translated([&] { return store_->deleteKey(std::string(key)); });
}

std::int64_t C10dStore::do_num_keys(Deadline /*deadline*/) {
  return translated([&] { return store_->getNumKeys(); });
}

c10::intrusive_ptr<c10d::Store> to_c10d_store(std::shared_ptr<Store> store) {
  if (!store) throw UsageError("to_c10d_store: the store is null");
  return c10::make_intrusive<StoreForC10d>(std::move(store));
}

}  // namespace retinue
