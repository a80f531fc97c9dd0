#include "transport/rails/peer_talk.h"

#include <string>
#include <string_view>
#include <utility>

#include "transport/rails/datagram_text.h"

namespace weft {

void PeerTalk::send_everywhere(const std::string& text) {
  for (int r = 0; r < rails_; ++r) paths_.send(rank_, r, text);
}

void PeerTalk::ping(std::int64_t now) {
  pings_.sent(now);
  std::string text(1, 'i');
  put(text, now);
  send_everywhere(text);
}

bool PeerTalk::say(std::string body, bool move, std::int64_t now) {
  if (!notes_.add(std::move(body), move)) return false;
  send_note(now);
  return true;
}

void PeerTalk::send_note(std::int64_t now) {
  notes_.sent(now);
  const NoteQueue::Note& note = notes_.first();
  std::string text(1, 'n');
  put(text, note.number);
  send_everywhere(text + note.body);
}

void PeerTalk::read(const Datagram& datagram, std::int64_t now, Listener& listener) {
  if (muted_ || datagram.bytes.empty()) return;
  std::string_view in = datagram.bytes;
  const char kind = in[0];
  in.remove_prefix(1);
  std::uint32_t number = 0;
  switch (kind) {
    case 'i':
      paths_.send(rank_, datagram.rail, 'o' + std::string(in));
      break;
    case 'o':
      if (std::int64_t sent = 0; get(in, sent))
        listener.on_answer(rank_,
                           pings_.answered(static_cast<std::size_t>(datagram.rail), sent, now));
      break;
    case 'n': {
      if (!get(in, number)) break;
      if (notes_.take(number)) listener.on_note(rank_, in);
      if (!notes_.taken(number)) break;
      std::string text(1, 'a');
      put(text, number);
      paths_.send(rank_, datagram.rail, text);
      break;
    }
    case 'a':
      if (!get(in, number) || !notes_.acknowledged(number)) break;
      if (!notes_.empty()) send_note(now);
      listener.on_told(rank_);
      break;
    default:
      break;
  }
}

}  // namespace weft
