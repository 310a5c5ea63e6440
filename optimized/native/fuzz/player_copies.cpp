// How the player ends copies, and settles them: at once, as ranks do, or wrongly.
#include <algorithm>

#include "player.hpp"
#include "transfer.hpp"

namespace kvcanon::fuzz {

void Player::complete_some() {
    engine_.failing = bytes_.below(4) == 0;
    if (engine_.open_orders() == 0) return;
    const int orders = static_cast<int>(std::min<size_t>(engine_.open_orders(), 255));
    engine_.complete(static_cast<size_t>(bytes_.below(orders)), bytes_.below(4) != 0);
}

void Player::settle_some() {
    const int way = bytes_.below(4);
    if (bytes_.below(16) == 0) engine_.arm();
    if (way < 2) {
        engine_.behind = bytes_.below(3);
        engine_.failing_there = bytes_.below(4) == 0;
        attempt([&] { settle(state_); });
        engine_.behind = 0;
        engine_.failing_there = false;
        return;
    }
    Completions ended;
    if (!attempt([&] { ended = arrived(state_); })) return;
    const uint64_t before = digest(state_);
    require(arrived(state_) == ended && digest(state_) == before, "what has arrived changed");
    if (way == 2) {
        settle_first(std::move(ended));
    } else {
        settle_wrongly(ended);
    }
}

// Settle the first copies of each direction, some of which failed on another rank.
void Player::settle_first(Completions ended) {
    int left[] = {bytes_.below(4), bytes_.below(4)};
    Completions named;
    for (const auto& [transfer_id, done] : ended) {
        if (left[static_cast<int>(state_.transfers.at(transfer_id).direction)]-- <= 0) continue;
        named.emplace_back(transfer_id, done && bytes_.below(4) != 0);
    }
    Completions given = named;
    if (bytes_.coin()) std::reverse(given.begin(), given.end());
    Settled settled;
    require(attempt([&] { settled = settle_these(state_, std::move(given)); }),
            "copies that have arrived were not settled");
    require(settled.size() == named.size(), "other copies were settled than were named");
    for (size_t at = 0; at < named.size(); ++at) {
        const auto& [transfer_id, status] = settled[at];
        require(transfer_id == named[at].first && state_.transfers.count(transfer_id) == 0,
                "other copies were settled than were named");
        require(status == Status::CANCELLED || (status == Status::DONE) == named[at].second,
                "a copy was settled as something else");
    }
}

// Each of these settlements is refused: the first copies of a direction are missing or have not
// ended, one is named twice, is unknown, or is done and failed here.
void Player::settle_wrongly(const Completions& ended) {
    const auto refused = [&](Completions named) {
        require(!attempt([&] { settle_these(state_, std::move(named)); }),
                "a wrong settlement was not refused");
    };
    Completions unknown = ended;
    unknown.emplace_back(state_.next_id, true);
    refused(unknown);
    for (const auto& [transfer_id, transfer] : state_.transfers) {
        const auto settles = [&, sought = transfer_id](const auto& each) {
            return each.first == sought;
        };
        if (std::any_of(ended.begin(), ended.end(), settles)) continue;
        Completions early = ended;
        early.emplace_back(transfer_id, false);
        refused(early);
    }
    bool begun[] = {false, false};
    for (size_t at = 0; at < ended.size(); ++at) {
        Completions twice = ended;
        twice.push_back(ended[at]);
        refused(twice);
        if (!ended[at].second) {
            Completions better = ended;
            better[at].second = true;
            refused(better);
        }
        const Direction direction = state_.transfers.at(ended[at].first).direction;
        // Without the first of its direction, a later one may be named no longer.
        const bool first = !std::exchange(begun[static_cast<int>(direction)], true);
        const bool more =
            std::any_of(ended.begin() + static_cast<std::ptrdiff_t>(at) + 1, ended.end(),
                        [&](const auto& each) {
                            return state_.transfers.at(each.first).direction == direction;
                        });
        if (!first || !more) continue;
        Completions others = ended;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
        refused(others);
    }
}

}  // namespace kvcanon::fuzz
