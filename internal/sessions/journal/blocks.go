package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/minio/highwayhash"
)

// These are the parts of a record in a block file of the engine (nats-server, server/filestore.go), with their sizes in
// bytes: length (4), sequence (8), time (8), length of the subject (2), subject, length of the header (4), header,
// body, checksum (8). If the length does not have the bit hasHeader, the record has neither a header nor the length of
// a header. The checksum covers neither the lengths nor that bit.
const (
	recordHead = 22
	recordSum  = 8
	hasHeader  = 1 << 31  // this bit of the length is set if the record has a header
	longest    = 32 << 20 // the longest record that the scan accepts
	// deletedBits are set in a sequence number if the message was erased, or if the record marks a deleted message.
	deletedBits = 3 << 62
	maxSkipped  = uint64(1e12) // a sequence number may exceed the previous one by at most this
	sector      = 512          // a disk writes this many bytes as a whole
)

// The scan accepts a record only if its time is between earliest (2020) and latest (2200), in nanoseconds since 1970.
const (
	earliest = int64(1577836800e9)
	latest   = int64(7258118400e9)
)

// block is the content of a block file.
type block struct {
	data []byte
	hash *highwayhash.Digest64
	sum  [recordSum]byte
}

// newBlock returns a block of a stream. number is the number in the name of the block file. The key of the checksums
// contains this number.
func newBlock(stream string, number int, data []byte) (*block, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, number))
	hash, err := highwayhash.NewDigest64(key[:])
	return &block{data: data, hash: hash}, err
}

// record is one record of a block. It is data[from:to] of the block.
type record struct {
	from, to int
	seq      uint64 // without deletedBits
	gone     bool   // the record is an erased message, or it marks a deleted message
	subject  []byte
	header   []byte
}

// frame finds the parts of a record from the lengths in the record. The record begins at the offset at. It must not end
// after the offset behind. text is the offset of the body within the record. ok is false if the lengths cannot be
// right.
func (b *block) frame(at, behind int) (r record, text int, ok bool) {
	if at < 0 || behind > len(b.data) || behind-at < recordHead+recordSum {
		return r, 0, false
	}
	head := b.data[at:]
	length := binary.LittleEndian.Uint32(head)
	size := int(length &^ hasHeader)
	text = recordHead + int(binary.LittleEndian.Uint16(head[20:]))
	seq := binary.LittleEndian.Uint64(head[4:])
	stamp := int64(binary.LittleEndian.Uint64(head[12:])) //nolint:gosec // any bits
	r = record{from: at, to: at + size, seq: seq &^ deletedBits, gone: seq&deletedBits != 0 || seq == 0}
	end := size - recordSum
	if size > longest || r.to > behind || text > end || stamp < earliest || stamp > latest {
		return r, 0, false
	}
	r.subject = head[recordHead:text]
	if length&hasHeader == 0 {
		return r, text, true
	}
	if text+4 > end {
		return r, 0, false
	}
	header := int(binary.LittleEndian.Uint32(head[text:]))
	text += 4
	if header > end-text || !isHeader(head[text:text+header]) {
		return r, text, false
	}
	r.header = head[text : text+header]
	return r, text, true
}

const headerBegin, headerEnd = "NATS/1.0", "\r\n\r\n"

func isHeader(text []byte) bool {
	return bytes.HasPrefix(text, []byte(headerBegin)) && bytes.HasSuffix(text, []byte(headerEnd))
}

// record returns the record at an offset. ok is false if the record is not whole.
func (b *block) record(at int) (r record, ok bool) {
	r, text, ok := b.frame(at, len(b.data))
	if !ok || !b.summed(r, text) {
		return r, false
	}
	return r, true
}

// summed reports whether the checksum of a record is right. text is the offset of the body within the record.
func (b *block) summed(r record, text int) bool {
	all := b.data[r.from:r.to]
	b.hash.Reset()
	_, _ = b.hash.Write(all[4:20])
	_, _ = b.hash.Write(r.subject)
	_, _ = b.hash.Write(all[text : len(all)-recordSum])
	return bytes.Equal(b.hash.Sum(b.sum[:0]), all[len(all)-recordSum:])
}

// hole is a range of bytes in a block that holds no whole record.
type hole struct {
	from, to int
	before   uint64   // sequence number of the last whole message before the hole, or 0 if there is none
	behind   uint64   // sequence number of the first whole message after the hole, or 0 if there is none
	subjects []string // the subjects of the damaged records in the hole, or nil if they cannot be read
}

// scanned is the result of a scan of one block.
type scanned struct {
	repaired int    // how many records had wrong lengths, which were corrected
	end      int    // the offset after the last whole record; an incomplete record may follow
	last     uint64 // the highest sequence number in this block and the blocks before it
}

// scan reads a block. It passes each whole record to the function see and each hole to the function lost, in their
// order in the block. last is the highest sequence number in the blocks before this one. tail says that this is the
// last block of the stream. Its last record may be incomplete because the machine lost its power. scan does not pass
// such a record to the function lost. If a record has wrong lengths, scan corrects them in the data of the block, but
// only if a checksum confirms the correction.
func (b *block) scan(last uint64, tail bool, see func(record), lost func(hole)) scanned {
	s := scanned{end: len(b.data), last: last}
	budget := 64 * len(b.data)
	for at := 0; at < len(b.data); {
		if r, ok := b.record(at); ok {
			if !r.gone {
				s.last = max(s.last, r.seq)
			}
			see(r)
			at = r.to
			continue
		}
		next := b.next(at, s.last, &budget)
		switch {
		case b.mend(at, next):
			s.repaired++
		case tail && next == len(b.data) && b.torn(at):
			s.end = at
			return s
		default:
			lost(hole{from: at, to: next, before: s.last, subjects: b.subjects(at, next)})
			at = next
		}
	}
	return s
}

// next returns the offset of the first whole record after a damaged one, or the end of the block if there is none. at
// is the offset of the damaged record. next first tries the length in the damaged record, and then every later offset.
// budget is the number of bytes over which next may still compute checksums.
func (b *block) next(at int, last uint64, budget *int) int {
	if r, _, _ := b.frame(at, len(b.data)); r.to > at+recordHead {
		if r.to == len(b.data) {
			return r.to
		}
		if _, ok := b.record(r.to); ok {
			return r.to
		}
	}
	for i := at + 1; i+recordHead+recordSum <= len(b.data); i++ {
		r, text, ok := b.frame(i, len(b.data))
		if !ok || r.seq > last+maxSkipped {
			continue
		}
		if *budget -= r.to - r.from; *budget < 0 {
			break
		}
		if b.summed(r, text) {
			return i
		}
	}
	return len(b.data)
}

// mend corrects the lengths in a damaged record. The record is between the offsets at and next. If the checksum does
// not confirm that only the lengths were wrong, mend changes nothing and returns false.
func (b *block) mend(at, next int) bool {
	size := next - at
	if size < recordHead+recordSum || size > longest {
		return false
	}
	head := b.data[at:next]
	old := bytes.Clone(head[:recordHead])
	subject := recordHead + int(binary.LittleEndian.Uint16(head[20:]))
	for _, bit := range []uint32{hasHeader, 0} {
		binary.LittleEndian.PutUint32(head, uint32(size)|bit)
		text := subject + 4
		if bit != 0 && text < size-recordSum { // The header ends with headerEnd.
			length := head[text-4 : text]
			was := bytes.Clone(length)
			if i := bytes.Index(head[text:size-recordSum], []byte(headerEnd)); i >= 0 {
				binary.LittleEndian.PutUint32(length, uint32(i+len(headerEnd))) //nolint:gosec // at most longest
				if _, ok := b.record(at); ok {
					return true
				}
			}
			copy(length, was)
		} else if bit == 0 {
			if _, ok := b.record(at); ok {
				return true
			}
		}
	}
	copy(head, old)
	return false
}

// subjects returns the subjects of the damaged records between two offsets. It returns nil if the lengths in these
// records do not lead exactly from the first offset to the second.
func (b *block) subjects(from, to int) (list []string) {
	for from < to {
		if to-from < recordHead+recordSum {
			return nil
		}
		head := b.data[from:to]
		size := int(binary.LittleEndian.Uint32(head) &^ hasHeader)
		subject := int(binary.LittleEndian.Uint16(head[20:]))
		if size < recordHead+recordSum || size > len(head) || recordHead+subject > size-recordSum {
			return nil
		}
		list = append(list, string(head[recordHead:recordHead+subject]))
		from += size
	}
	return list
}

// torn reports whether the last record of the block was not completely written. at is the offset of this damaged
// record. A record was not completely written if it is too short, or if its checksum or a whole sector holds only
// zeros.
func (b *block) torn(at int) bool {
	rest := b.data[at:]
	if len(rest) < recordHead+recordSum || int(binary.LittleEndian.Uint32(rest)&^hasHeader) > len(rest) {
		return true
	}
	if bytes.Count(rest[len(rest)-recordSum:], []byte{0}) == recordSum {
		return true
	}
	for i := (at + sector - 1) / sector * sector; i+sector <= len(b.data); i += sector {
		if bytes.Count(b.data[i:i+sector], []byte{0}) == sector {
			return true
		}
	}
	return false
}
