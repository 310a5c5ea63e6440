#include "failures.hpp"

#include <algorithm>
#include <cassert>

namespace kvcanon {

namespace {

// Bits of `Node::settling`, two for each direction.
uint8_t failed_bit(Direction direction) {
    return static_cast<uint8_t>(1 << static_cast<int>(direction));
}
uint8_t sound_bit(Direction direction) {
    return static_cast<uint8_t>(4 << static_cast<int>(direction));
}

}  // namespace

Failures::~Failures() {
    forget_sound();
    for (Node* node : failed_) node->settling = 0;
}

void Failures::add_failed(Node* node, Direction direction) {
    assert(node->parent != nullptr);
    node->settling |= failed_bit(direction);
    failed_.push_back(node);
    // Nodes below it are sound no longer.
    forget_sound();
}

void Failures::add_cancelled(const Transfer& transfer) {
    for (const Part& part : transfer.parts) {
        part.node->settling |= failed_bit(transfer.direction);
        failed_.push_back(part.node);
    }
}

bool Failures::are_above(const Transfer& transfer) {
    return std::any_of(transfer.parts.begin(), transfer.parts.end(),
                       [&](const Part& part) { return are_above(part.node, transfer.direction); });
}

bool Failures::are_above(Node* end, Direction direction) {
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        if ((node->settling & failed_bit(direction)) != 0) return true;
        if ((node->settling & sound_bit(direction)) != 0) break;
    }
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        if ((node->settling & sound_bit(direction)) != 0) break;
        node->settling |= sound_bit(direction);
        sound_.push_back(node);
    }
    return false;
}

void Failures::forget_sound() {
    const uint8_t failed = failed_bit(Direction::BACKUP) | failed_bit(Direction::LOAD_BACK);
    for (Node* node : sound_) node->settling &= failed;
    sound_.clear();
}

}  // namespace kvcanon
