#include "store/store_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace retinue {

std::optional<std::string> StoreSession::check_stranger(std::string_view bytes) {
  if (proof_.size() + bytes.size() > kProofBytes) return std::nullopt;
  proof_ += bytes;
  const std::size_t beginning = std::min(proof_.size(), kStoreMagic.size());
  if (proof_.compare(0, beginning, kStoreMagic, 0, beginning) != 0) return std::nullopt;
  if (proof_.size() < kProofBytes) return "";
  const std::optional<std::string> client_nonce = check_proof(side_->token, nonce_, proof_);
  if (!client_nonce) return std::nullopt;
  is_member_ = true;
  reader_ = FrameReader(side_->facts.max_frame_bytes);
  return make_acceptance(side_->token, nonce_, *client_nonce, side_->facts);
}

std::optional<std::string> StoreSession::receive(std::string_view bytes) {
  if (!is_member_) return check_stranger(bytes);
  if (is_busy_ || reader_.take(bytes) != bytes.size()) return std::nullopt;
  if (!reader_.is_complete()) return "";
  if (reader_.is_too_long()) {
    const Frame refusal{static_cast<std::uint8_t>(Answer::kRefused),
                        0,
                        {fmt::format("the call has {} bytes, but a call may have at most {}: raise "
                                     "TcpStoreOptions::max_message_bytes",
                                     reader_.expected(), side_->facts.max_frame_bytes)}};
    reader_ = FrameReader(side_->facts.max_frame_bytes);
    return encode(refusal);
  }
  request_ = reader_.frame();
  if (!request_) return std::nullopt;
  is_busy_ = true;
  return "";
}

std::optional<Frame> StoreSession::take_request() {
  return std::exchange(request_, std::nullopt);
}

}  // namespace retinue
