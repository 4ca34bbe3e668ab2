package anonymize

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/councild/councild/internal/council"
)

// SeedFor returns a session's seed, 0 to council.MaxSeed, if the operator has fixed a random seed. With this seed,
// each question has its own orders, and they are reproducible. The seed is the low 53 bits of SHA-256 over the decimal
// text of randomSeed, a zero byte and the question. The low bits are those of the last eight bytes of the sum, read as
// one big-endian number.
func SeedFor(randomSeed int64, question string) int64 {
	sum := sha256.Sum256([]byte(strconv.FormatInt(randomSeed, 10) + "\x00" + question))
	return int64(binary.BigEndian.Uint64(sum[sha256.Size-8:]) & council.MaxSeed)
}

// ShowOwn reports whether reviewers see their own answers in the session with this seed. The rate, 0 to 1, is the
// share of all seeds for which it returns true.
func ShowOwn(seed int64, rate float64) bool { return chance(seed, "own answers", rate) }

// Shadowed reports whether reviewers compare the synthesis with the top-ranked answer in the session with this seed.
// The rate, 0 to 1, is the share of all seeds for which it returns true.
func Shadowed(seed int64, rate float64) bool { return chance(seed, "shadow", rate) }

// LabelWanted reports whether people are asked which answer they prefer in the session with this seed. The rate, 0 to
// 1, is the share of all seeds for which it returns true.
func LabelWanted(seed int64, rate float64) bool { return chance(seed, "label wanted", rate) }

// SynthesisFirst reports whether the first reader that compares the synthesis with another answer sees the synthesis
// first. It returns true for half of all seeds.
func SynthesisFirst(seed int64) bool { return chance(seed, "synthesis first", 0.5) }

// chance returns true for a share of all seeds. The rate, 0 to 1, is this share. The results for different purposes
// are independent.
func chance(seed int64, purpose string, rate float64) bool {
	u := newStream(seed, purpose, "").chacha.Uint64() >> 11
	return float64(u)/(1<<53) < rate
}

// Deranged returns a random permutation of ids, drawn by the seed, in which no id stays the same. It maps each id
// to the next one in a random cycle. A single id stays the same.
func Deranged(seed int64, ids []string) map[string]string {
	order := pick(ids, newStream(seed, "placebo", "").permutation(len(ids)))
	next := make(map[string]string, len(order))
	for i, id := range order {
		next[id] = order[(i+1)%len(order)]
	}
	return next
}

// Top returns the member that is ranked first. If several members share the first rank, the seed draws one of them.
// It returns "" without standings.
func Top(seed int64, standings []council.Standing) string {
	var first []string
	for _, s := range standings {
		if s.FinalRank != nil && *s.FinalRank == 1 {
			first = append(first, s.Model)
		}
	}
	return One(seed, first)
}

// One draws one of several members with the seed. It returns "" if there are no members.
func One(seed int64, members []string) string {
	if len(members) == 0 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(members))
	return sorted[newStream(seed, "top", "").below(len(sorted))]
}

// KeyedHash returns 16 hexadecimal digits of the HMAC-SHA-256 of a text. The same text and key give the same
// digits. Without the key, the digits do not reveal the text.
func KeyedHash(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))[:16]
}

// stream is a sequence of random choices for one purpose. It draws bounded numbers itself, because math/rand/v2
// specifies its sources, but not the methods that use them.
type stream struct{ chacha *rand.ChaCha8 }

// newStream derives a stream from a session's seed. Streams for different purposes or names are independent of each
// other. A purpose must not contain a zero byte.
func newStream(seed int64, purpose, name string) stream {
	key := sha256.Sum256([]byte("councild " + purpose + "\x00" + strconv.FormatInt(seed, 10) + "\x00" + name))
	return stream{rand.NewChaCha8(key)}
}

// below returns a number from 0 to n-1, for n > 0. It draws again if the draw is in the last, incomplete run of n
// values, which would favour small numbers.
func (s stream) below(n int) int {
	m := uint64(n)
	for {
		if v := s.chacha.Uint64(); v < math.MaxUint64-math.MaxUint64%m {
			return int(v % m)
		}
	}
}

// permutation returns the numbers 0 to n-1 in random order (Fisher and Yates).
func (s stream) permutation(n int) []int {
	p := make([]int, n)
	for i := range p {
		j := s.below(i + 1)
		p[i] = p[j]
		p[j] = i
	}
	return p
}
