package llm

import (
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// Some local servers cut a prompt that is longer than their window, without a word: of Ollama's default, the model
// sees the last 4,096 tokens. They still count the tokens that were left. So a count tells that a prompt was
// cut when it is smaller than any tokeniser can make of the text.
//
// fewestTokens is such a bound. It counts letters, marks on them, and digits; in none of the vocabularies in use do these make longer
// tokens:
//
//   - A word of up to 6 characters counts as a seventh for each, and a seventh for the blank before it. Longer words
//     count as one token, from 14 characters on as one for each 14. Tokenisers split at words, so that a word has one token at least:
//     English prose of the largest vocabularies (o200k of OpenAI, 200,000 tokens) has 4.5 to 5 characters a token. Even tokens of several
//     words (SuperBPE) come to 6.6 characters. German and Finnish have less, and so have all other scripts with blanks. In scripts
//     without blanks, such as Thai, a sentence counts as one word.
//   - A Chinese character counts as a third of a token. The vendors of Chinese models name 1.5 to 1.8 characters a
//     token (DeepSeek: 0.6 tokens a character).
//   - A syllable of Kana or Hangul counts as a quarter. Tokenisers made for Japanese come to 2.2 characters a token, those for
//     Korean to 2.5.
//
// All other characters count as nothing: a run of 80 blanks, or of "=", can be one token. So does a character that repeats the one before
// it. Base64, numbers and emoji have more tokens than they count, so a cut of these may pass unnoticed. What is noticed, in English, is a
// prompt of which less than some 60 % was read.
func fewestTokens(text string) (tokens int64) {
	const (
		unit  = 84 // of a token: 3, 4, 7 and 14 divide it
		word  = unit
		short = 7
	)
	var units int64
	letters := int64(0) // of the word so far
	endWord := func() {
		switch {
		case letters == 0:
		case letters < short:
			units += (letters + 1) * unit / short
		default:
			units += max(word, letters*unit/(2*short))
		}
		letters = 0
	}
	before := rune(-1)
	for _, r := range text {
		if r == before {
			continue
		}
		before = r
		switch {
		case r < utf8.RuneSelf:
			if 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' {
				letters++
			} else {
				endWord()
			}
		case unicode.Is(unicode.Han, r):
			endWord()
			units += unit / 3
		case unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			endWord()
			units += unit / 4
		case unicode.In(r, unicode.L, unicode.M, unicode.N):
			letters++
		default:
			endWord()
		}
	}
	endWord()
	return units / unit
}

// minCut is the least bound of a prompt that is judged: the smallest windows in use are some thousand tokens, and few words may be odd
// ones.
const minCut = 1024

// minWindow is less than any window in use. A smaller count is no cut: some servers count only what their cache does not hold.
const minWindow = 512

// prompt returns the most tokens of the prompt that the figures of a reply allow. Those of a cache count, under any name: some providers
// leave them out of the prompt's, as Anthropic's own interface does. A total that is larger than its parts may hold them too.
func (f *figures) prompt() int64 {
	read := 0.
	for _, part := range []figure{f.Input, f.InputParts.Cached, f.InputParts.Written, f.CacheRead, f.CacheMade, f.CacheHit} {
		if part.value > 0 {
			read += part.value
		}
	}
	return int64(min(max(read, f.Total.value-f.Output.value), 1<<40)) // far beyond what is believed
}

// cutsPrompt reports whether a provider read less of a prompt than all of it. Where the provider does not tell how many it read, nothing
// is known.
func cutsPrompt(call *council.Call, r received) bool {
	if r.used == nil || r.usage.InputTokens == nil || call.Texts != nil {
		return false
	}
	read := max(*r.usage.InputTokens, r.used.prompt())
	if read < minWindow {
		return false
	}
	bytes := 0
	for _, m := range call.Messages {
		bytes += len(m.Content)
	}
	if int64(bytes) < 7*max(read, minCut) { // as a rule: fewestTokens counts no token for less than seven bytes
		return false
	}
	var fewest int64
	for _, m := range call.Messages {
		fewest += fewestTokens(m.Content)
	}
	return fewest >= minCut && read < fewest
}
