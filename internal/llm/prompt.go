package llm

import (
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// fewestTokens returns a lower bound for the number of tokens in a text, whichever tokeniser a model uses. cutsPrompt
// uses it to notice prompts that a server has cut. Some local servers cut a prompt that is longer than their context
// window, and do not report this. With Ollama's default, the model sees only the last 4,096 tokens. Such servers still
// report how many tokens the model read. If this number is below the bound, the prompt was cut.
//
// fewestTokens counts letters, marks on letters, and digits. Every vocabulary in use makes at least this many tokens of
// such characters:
//
//   - In a word of up to 6 characters, each character counts as a seventh of a token, and so does the blank before the
//     word. Longer words count as one token, and from 14 characters on as one token for each 14 characters. Tokenisers
//     split at words, so a word has at least one token. With the largest vocabularies (o200k of OpenAI, 200,000
//     tokens), English prose has 4.5 to 5 characters per token. Even tokens of several words (SuperBPE) have only
//     6.6 characters. German, Finnish and all other languages with blanks have fewer characters per token. In scripts
//     without blanks, such as Thai, a sentence counts as one word.
//   - A Chinese character counts as a third of a token. The vendors of Chinese models name 1.5 to 1.8 characters per
//     token (DeepSeek: 0.6 tokens per character).
//   - A syllable of Kana or Hangul counts as a quarter of a token. Tokenisers made for Japanese have 2.2 characters
//     per token, and tokenisers made for Korean have 2.5.
//
// All other characters count as nothing, because a run of 80 blanks, or of "=", can be one token. A character that
// repeats the character before it counts as nothing too. Base64, numbers and emoji have more tokens than fewestTokens
// counts, so cutsPrompt may not notice a cut in them. In English, it notices a cut if the model read less than about
// 60 % of the prompt.
func fewestTokens(text string) (tokens int64) {
	const (
		// A token is counted as 84 units. Then a third, a quarter, a seventh and a fourteenth of a token are all whole
		// numbers of units.
		unit  = 84
		word  = unit
		short = 7
	)
	var units int64
	letters := int64(0) // letters of the word so far
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

// minCut is the smallest result of fewestTokens for which cutsPrompt reports a cut. Shorter texts are not tested,
// because a few unusual words change their result too much. The smallest context windows in use have some thousand
// tokens.
const minCut = 1024

// minWindow is smaller than any context window in use, in tokens. If a provider reports fewer tokens, cutsPrompt
// reports no cut, because some servers count only tokens that are not in their cache.
const minWindow = 512

// prompt returns the largest number of tokens that the model may have read, according to the figures of a reply. It
// adds the cached tokens, under all names, because some providers leave them out of the prompt's tokens, as Anthropic's
// own interface does. If the total is larger than its parts, the difference may be cached tokens too.
func (f *figures) prompt() int64 {
	read := 0.
	for _, part := range []figure{f.Input, f.InputParts.Cached, f.InputParts.Written, f.CacheRead, f.CacheMade, f.CacheHit} {
		if part.value > 0 {
			read += part.value
		}
	}
	// 1<<40 is far above any plausible number of tokens.
	return int64(min(max(read, f.Total.value-f.Output.value), 1<<40))
}

// cutsPrompt reports whether a provider read only a part of the prompt. It returns false if the provider does not
// report how many tokens it read.
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
	if int64(bytes) < 7*max(read, minCut) { // A cheap test first: fewestTokens needs seven bytes or more per token.
		return false
	}
	var fewest int64
	for _, m := range call.Messages {
		fewest += fewestTokens(m.Content)
	}
	return fewest >= minCut && read < fewest
}
