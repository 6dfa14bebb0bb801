#pragma once

#include <string>
#include <vector>

#include "retinue/launch/store_exchange.h"
#include "retinue/store/store.h"

namespace retinue {

/// Returns what each rank gives, in rank order: texts of which the first 512 bytes travel. Blocking: until all ranks
/// are there. Errors: the exchange's.
std::vector<std::string> exchange_texts(StoreExchange& exchange, std::string own, int size);

/// Where the ranks of a group reach each other by TCP, in rank order: numeric addresses, which the ranks tell each
/// other. Empty where GLOO_SOCKET_IFNAME says it.
///
/// It is that of the interface GLOO_SOCKET_IFNAME, else the address from which a rank reaches the server of its
/// `meeting` store, if there is one, else that of the default route. Blocking: until all ranks are there. Errors: the
/// same on all ranks: UsageError for an address that others can't reach, one that a rank could not find out, and for
/// ranks of other versions of Retinue. Else the exchange's.
std::vector<std::string> exchange_addresses(StoreExchange& exchange, const Store& meeting, const std::string& group,
                                            int size);

}  // namespace retinue
