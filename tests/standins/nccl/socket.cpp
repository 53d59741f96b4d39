#include "socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace standin::nccl {

namespace {

[[noreturn]] void refuse(const std::string& doing) {
  throw std::runtime_error(doing + ": " + std::generic_category().message(errno));
}

int new_socket() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) refuse("making a socket");
  return fd;
}

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

Address address_of(const std::string& name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  // A zero in front: the abstract namespace.
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

Socket::Socket(std::string name, bool listens) : name_(std::move(name)), listens_(listens) {
  if (!listens_) return;
  listener_ = new_socket();
  const auto address = address_of(name_);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address.value), address.length) != 0 ||
      listen(listener_, 1) != 0) {
    close(listener_);
    refuse("an id serves one communicator");
  }
}

Socket::~Socket() {
  if (listener_ >= 0) close(listener_);
  if (fd_ >= 0) close(fd_);
}

void Socket::connect() {
  if (listens_) {
    fd_ = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    connected_ = fd_ >= 0;
    return;
  }
  if (fd_ < 0) fd_ = new_socket();
  const auto address = address_of(name_);
  connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address.value), address.length) == 0;
}

void Socket::pump() {
  if (!connected_) connect();
  if (!connected_) return;
  write_some();
  read_some();
}

void Socket::post(Header header, const void* payload) {
  const auto* from = reinterpret_cast<const char*>(&header);
  outgoing_.insert(outgoing_.end(), from, from + sizeof header);
  const auto* bytes = static_cast<const char*>(payload);
  outgoing_.insert(outgoing_.end(), bytes, bytes + header.bytes);
  pump();
}

void Socket::write_some() {
  std::size_t done = 0;
  while (done < outgoing_.size() && !closed_) {
    const auto count = send(fd_, outgoing_.data() + done, outgoing_.size() - done, MSG_NOSIGNAL);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      closed_ = true;
    } else {
      break;
    }
  }
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(done));
}

void Socket::read_some() {
  char buffer[1 << 16];
  for (;;) {
    const auto count = recv(fd_, buffer, sizeof buffer, 0);
    if (count > 0) {
      unparsed_.insert(unparsed_.end(), buffer, buffer + count);
      continue;
    }
    // A peer that is killed leaves what it has sent.
    if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) closed_ = true;
    break;
  }
  parse();
}

void Socket::parse() {
  std::size_t at = 0;
  Header header;
  while (unparsed_.size() - at >= sizeof header) {
    std::memcpy(&header, unparsed_.data() + at, sizeof header);
    if (unparsed_.size() - at - sizeof header < header.bytes) break;
    const auto* begin = unparsed_.data() + at + sizeof header;
    incoming_.push_back({header, {begin, begin + header.bytes}});
    at += sizeof header + header.bytes;
  }
  unparsed_.erase(unparsed_.begin(), unparsed_.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace standin::nccl
