#pragma once
// Messages between the two processes of a communicator, over a Unix socket of the abstract namespace: it has
// no file that a killed process could leave behind.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace standin::nccl {

enum class Kind : std::uint32_t {
  hello,    // who a rank is; payload: host and device
  connect,  // it has queued its first operation
  send,     // its stream has come to a send of so many elements
  receive,  // to a receive
  data,     // payload: the bytes of its next send
  bye,      // it sends nothing any more
};

struct Header {
  Kind kind = Kind::hello;
  std::uint32_t type = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  // of the payload
};

struct Message {
  Header header;
  std::vector<char> payload;
};

// One end. Nothing blocks; not thread-safe.
class Socket {
 public:
  // Rank 0 listens under the name, rank 1 connects; both as often as it takes.
  Socket(std::string name, bool listens);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Sends what is queued and reads what has come. Throws std::runtime_error where the system refuses.
  void pump();
  void post(Header header, const void* payload);
  bool connected() const { return connected_; }
  bool closed() const { return closed_; }  // by the peer
  std::deque<Message>& incoming() { return incoming_; }

  int descriptor() const { return connected_ || listener_ < 0 ? fd_ : listener_; }
  bool has_output() const { return !outgoing_.empty(); }

 private:
  void connect();
  void write_some();
  void read_some();
  void parse();

  std::string name_;
  bool listens_;
  int listener_ = -1;
  int fd_ = -1;
  bool connected_ = false;
  bool closed_ = false;
  std::vector<char> outgoing_;
  std::vector<char> unparsed_;
  std::deque<Message> incoming_;
};

}  // namespace standin::nccl
