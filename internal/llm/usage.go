package llm

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/councild/councild/internal/council"
)

// figure is a number in a reply. A malformed one is marked as doubted, so that the text
// beside it is not lost.
type figure struct {
	value          float64
	given, doubted bool
}

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (f *figure) UnmarshalJSON(b []byte) error {
	value, err := strconv.ParseFloat(string(b), 64)
	*f = figure{value: value, given: string(b) != "null", doubted: err != nil && string(b) != "null"}
	return nil
}

// readUsage reads what a request consumed, and counts the figures that are not believed.
// The cost is OpenRouter's extension, in US dollars. A completion has at least one token
// on either side, so a 0 stands for a figure that was not given.
func readUsage(raw json.RawMessage) (u council.Usage, k Kinds, doubted int) {
	var f figures
	if json.Unmarshal(raw, &f) != nil { // missing, or no object
		return u, k, 0
	}
	u, doubted = f.read()
	return u, f.kinds(), doubted
}

type figures struct {
	Input       figure `json:"prompt_tokens"`
	Output      figure `json:"completion_tokens"`
	Cost        figure `json:"cost"`
	InputParts  parts  `json:"prompt_tokens_details"`
	OutputParts parts  `json:"completion_tokens_details"`
}

// parts are the kinds of tokens that have prices of their own.
type parts struct {
	Cached    figure `json:"cached_tokens"`
	Written   figure `json:"cache_write_tokens"` // OpenRouter's extension
	Reasoning figure `json:"reasoning_tokens"`
}

// UnmarshalJSON implements json.Unmarshaler. It never fails: what cannot be read is not there.
func (p *parts) UnmarshalJSON(b []byte) error {
	type plain parts
	var read plain
	if json.Unmarshal(b, &read) == nil {
		*p = parts(read)
	}
	return nil
}

// Kinds are the tokens of a request that have prices of their own, 0 where the provider does not
// tell. Those of the cache are among the input tokens, and those of reasoning among the output.
type Kinds struct{ CachedInput, CacheWrite, Reasoning int64 }

func (reply *figures) kinds() Kinds {
	count := func(f figure) int64 {
		const most = 1 << 40 // far beyond what is believed
		if !(f.value > 0 && f.value < most) || f.doubted {
			return 0
		}
		return int64(f.value)
	}
	return Kinds{count(reply.InputParts.Cached), count(reply.InputParts.Written), count(reply.OutputParts.Reasoning)}
}

// read returns the figures that are believed, and counts the others.
func (reply *figures) read() (u council.Usage, doubted int) {
	var tokens [2]int64 // one allocation for both
	count := func(f figure, n *int64) *int64 {
		f.doubted = f.doubted || f.value != math.Trunc(f.value)
		if f.doubted {
			doubted++
		}
		if f.doubted || f.value == 0 {
			return nil
		}
		const most = 1 << 62 // far beyond what is believed
		*n = int64(max(min(f.value, most), -most))
		return n
	}
	u.InputTokens, u.OutputTokens = count(reply.Input, &tokens[0]), count(reply.Output, &tokens[1])
	if reply.Cost.doubted {
		doubted++
	} else if reply.Cost.given {
		u.CostUSD = new(reply.Cost.value)
	}
	u, beyond := u.Believable()
	return u, doubted + beyond
}

// quoteNaN returns data with quotes around every NaN and Infinity outside strings: some
// servers write them in place of a number, which is not JSON.
func quoteNaN(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data)+16)
	for inString := false; len(data) > 0; {
		n := 1
		switch {
		case data[0] == '"':
			inString = !inString
		case inString && data[0] == '\\':
			n = min(2, len(data))
		case !inString && bytes.IndexByte([]byte("NI-"), data[0]) >= 0:
			for _, word := range []string{"NaN", "-NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(data, []byte(word)) {
					out, data, n = append(out, `"NaN"`...), data[len(word):], 0
					break
				}
			}
		}
		out, data = append(out, data[:n]...), data[n:]
	}
	return out
}
