#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// How a client and a server of a TcpStore prove to each other that they know the job's token, without saying it:
///
///   server: greeting    magic, nonce S
///   client: proof       magic, nonce C, HMAC(token; "client", S, C)
///   server: acceptance  its id, longest frame, HMAC(token; "server", C, S, id, longest frame)
///
/// HMAC is that of SHA-256. Who sees the exchange learns nothing of a random token; answers can't be used again, since
/// both sides brought random numbers of their own.
namespace retinue {

inline constexpr std::string_view kStoreMagic = "retinue-store-1\n";
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMacBytes = 32;
inline constexpr std::size_t kServerIdBytes = 16;
inline constexpr std::size_t kGreetingBytes = kStoreMagic.size() + kNonceBytes;
inline constexpr std::size_t kProofBytes = kGreetingBytes + kMacBytes;
inline constexpr std::size_t kAcceptanceBytes = kServerIdBytes + 8 + kMacBytes;

/// What a client may know of a server that has proved itself.
struct ServerFacts {
  std::string id;                     ///< Random, so that another server at the same address is told apart.
  std::uint64_t max_frame_bytes = 0;  ///< The longest request that it reads.
};

std::string make_greeting(std::string_view server_nonce);
std::string make_proof(std::string_view token, std::string_view server_nonce, std::string_view client_nonce);
/// The nonce of a client that knows the token; nullopt for all others. `proof` has kProofBytes.
std::optional<std::string> check_proof(std::string_view token, std::string_view server_nonce, std::string_view proof);
std::string make_acceptance(std::string_view token, std::string_view server_nonce, std::string_view client_nonce,
                            const ServerFacts& facts);
/// nullopt for who doesn't know the token. `acceptance` has kAcceptanceBytes.
std::optional<ServerFacts> check_acceptance(std::string_view token, std::string_view server_nonce,
                                            std::string_view client_nonce, std::string_view acceptance);

}  // namespace retinue
