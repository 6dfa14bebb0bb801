#include "store/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "retinue/base/error.h"
#include "store/little_endian.h"

namespace retinue {
namespace {

std::string mac(std::string_view token, const std::string& text) {
  std::string result(kMacBytes, '\0');
  unsigned int bytes = 0;
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(result.data()), &bytes) == nullptr ||
      bytes != kMacBytes)
    throw Error("OpenSSL cannot compute HMAC-SHA256: see its configuration (openssl.cnf)");
  return result;
}

bool is_mac(std::string_view given, const std::string& right) {
  return given.size() == right.size() && CRYPTO_memcmp(given.data(), right.data(), right.size()) == 0;
}

std::string client_mac(std::string_view token, std::string_view server_nonce, std::string_view client_nonce) {
  return mac(token, fmt::format("{}client{}{}", kStoreMagic, server_nonce, client_nonce));
}

std::string server_mac(std::string_view token, std::string_view server_nonce, std::string_view client_nonce,
                       std::string_view facts) {
  return mac(token, fmt::format("{}server{}{}{}", kStoreMagic, client_nonce, server_nonce, facts));
}

}  // namespace

std::string make_greeting(std::string_view server_nonce) {
  return fmt::format("{}{}", kStoreMagic, server_nonce);
}

std::string make_proof(std::string_view token, std::string_view server_nonce, std::string_view client_nonce) {
  return fmt::format("{}{}{}", kStoreMagic, client_nonce, client_mac(token, server_nonce, client_nonce));
}

std::optional<std::string> check_proof(std::string_view token, std::string_view server_nonce, std::string_view proof) {
  if (proof.size() != kProofBytes || !proof.starts_with(kStoreMagic)) return std::nullopt;
  const std::string_view client_nonce = proof.substr(kStoreMagic.size(), kNonceBytes);
  if (!is_mac(proof.substr(kGreetingBytes), client_mac(token, server_nonce, client_nonce))) return std::nullopt;
  return std::string(client_nonce);
}

std::string make_acceptance(std::string_view token, std::string_view server_nonce, std::string_view client_nonce,
                            const ServerFacts& facts) {
  std::string text = facts.id;
  put_number(text, facts.max_frame_bytes);
  return text + server_mac(token, server_nonce, client_nonce, text);
}

std::optional<ServerFacts> check_acceptance(std::string_view token, std::string_view server_nonce,
                                            std::string_view client_nonce, std::string_view acceptance) {
  if (acceptance.size() != kAcceptanceBytes) return std::nullopt;
  const std::string_view text = acceptance.substr(0, kServerIdBytes + 8);
  if (!is_mac(acceptance.substr(text.size()), server_mac(token, server_nonce, client_nonce, text))) return std::nullopt;
  return ServerFacts{std::string(text.substr(0, kServerIdBytes)),
                     number_at<std::uint64_t>(text.substr(kServerIdBytes))};
}

}  // namespace retinue
