#include "transport/life.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace diffuse {

LastLife last_life(int rank, std::span<const LifeState> states) {
  const auto at = [&](int index) -> const LifeState& { return states[static_cast<std::size_t>(index)]; };
  std::vector<int> chain{rank};
  LastLife life;
  while (!life.circle && at(chain.back()).waits_for >= 0) {
    const int next = at(chain.back()).waits_for;
    life.circle = std::find(chain.begin(), chain.end(), next) != chain.end();
    if (!life.circle) chain.push_back(next);
  }
  if (life.circle) {
    life.silent =
        *std::min_element(chain.begin(), chain.end(), [&](int a, int b) { return at(a).seen < at(b).seen; });
    life.time = LifeClock::time_point::min();
  } else {
    life.silent = chain.back();
    life.time = at(chain.back()).seen;
    chain.pop_back();
  }
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const auto through_others = std::max(at(*it).waits_since, life.time);
    if (!life.circle && at(*it).seen < through_others) life.silent = *it;
    life.time = std::min(at(*it).seen, through_others);
  }
  life.silent_seen = at(life.silent).seen;
  return life;
}

std::string describe_silence(LifeClock::time_point now, LifeClock::time_point begin, int peer,
                             const LastLife& life, std::span<const std::string> hosts,
                             const std::string& purpose) {
  const auto name = [&](int rank) {
    std::string text = "rank " + std::to_string(rank);
    if (static_cast<std::size_t>(rank) < hosts.size())
      text += " (host " + hosts[static_cast<std::size_t>(rank)] + ")";
    return text;
  };
  const auto silence = now - std::max(begin, life.time);
  const double seconds = std::chrono::duration<double>(silence).count();
  std::string amount = std::to_string(seconds < 10 ? std::round(seconds * 10) / 10 : std::round(seconds));
  amount.erase(amount.find_last_not_of('0') + 1);
  if (amount.back() == '.') amount.pop_back();

  std::string text = "waited " + amount + " s for " + name(peer);
  if (!purpose.empty()) text += ": " + purpose;
  if (life.circle && now - life.silent_seen < silence / 2)
    text += "; the ranks wait for one another in a circle";
  else if (life.silent != peer)
    text += "; it waits in turn for " + name(life.silent) + ", which gives no sign of life";
  else
    text += "; it gives no sign of life";
  return text;
}

}  // namespace diffuse
