package stage2

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ordinals holds the words for the places in the languages of the corpus. Each paragraph is one place, the best one
// first.
const ordinals = `
first erster erste erstes ersten premier première primero primera primer primeiro primeira первый первая первое
первом 第一 第一名 第一位 一位 첫 첫째 الأول الأولى पहला पहली प्रथम

second zweiter zweite zweites zweiten zweitbester zweitbeste deuxième seconde segundo segunda второй вторая второе
втором 第二 第二名 第二位 二位 두 둘째 الثاني الثانية दूसरा दूसरी द्वितीय

third dritter dritte drittes dritten drittbester drittbeste troisième tercero tercera tercer terceiro terceira
третий третья третье третьем 第三 第三名 第三位 三位 세 셋째 الثالث الثالثة तीसरा तीसरी तृतीय

fourth vierter vierte viertes vierten quatrième cuarto cuarta quarto quarta четвёртый четвертый четвёртое четвертое
第四 第四名 第四位 四位 네 넷째 الرابع الرابعة चौथा चौथी चतुर्थ

fifth fünfter fünfte fünftes fünften cinquième quinto quinta пятый пятая пятое 第五 第五名 第五位 五位 다섯째 الخامس الخامسة
पाँचवा पांचवां

sixth sechster sechste sechstes sixième sexto sexta шестой шестая шестое 第六 第六名 第六位 六位 السادس السادسة छठा

seventh siebter siebte siebtes septième séptimo séptima sétimo sétima седьмой седьмая седьмое 第七 第七名 第七位 七位 السابع
السابعة सातवां

eighth achter achte achtes huitième octavo octava oitavo oitava восьмой восьмая восьмое 第八 第八名 第八位 八位 الثامن الثامنة
आठवां

ninth neunter neunte neuntes neuvième noveno novena nono nona девятый девятая девятое 第九 第九名 第九位 九位 التاسع التاسعة
नौवां

tenth zehnter zehnte zehntes dixième décimo décima десятый десятая десятое 第十 第十名 第十位 十位 العاشر العاشرة दसवां

eleventh elfter elfte onzième undécimo 第十一 第十一名

twelfth zwölfter zwölfte douzième duodécimo 第十二 第十二名`

const (
	// placeWords say that a number or an ordinal is a place. Such a word stands before or after the number.
	placeWords = ` rank ranked ranks ranking place placed places position pos no nr number platz rang stelle puesto lugar posición posição место ` +
		`номер 第 名次 排名 排名第 名 位 番 順位 순위 위 등 번째 المركز المرتبة स्थान best choice # № `
	// placeEndings turn the number before them into an ordinal.
	placeEndings = ` st nd rd th er re ère ème e º ª ° й я е ый ой ая ое `
	// placeFillers stand before a place and have no meaning of their own.
	placeFillers = ` is comes takes in at the ist auf der die das den est le la en es el em é o a на `
	// bestWords and worstWords say that an answer is before or after all others.
	bestWords = ` best top winner strongest beste bester bestes meilleur meilleure mejor melhor ` +
		`лучший лучшая лучшее 最好 最佳 最优 最良 最高 최고 الأفضل सर्वश्रेष्ठ `
	worstWords = ` worst last weakest poorest schlechteste schlechtester schlechtestes ` +
		`letzte letzter letztes pire dernier dernière peor último ` +
		`última pior худший худшая худшее последний последняя 最差 最后 最後 最悪 최악 الأسوأ `
)

// ordinal maps words such as "second" to their places.
var ordinal = func() map[string]int { //nolint:gochecknoglobals // a table
	places := map[string]int{}
	for i, words := range strings.Split(ordinals, "\n\n") {
		for word := range strings.FieldsSeq(words) {
			places[word] = i + 1
		}
	}
	return places
}()

// listed reports whether a word is in a list of words. In the list, each word has a space before and after it.
func listed(words, word string) bool { return word != "" && strings.Contains(words, " "+word+" ") }

// token cuts the first word, number or sign from text, in lower case. It skips space, brackets and separators
// before it.
func token(text string) (word, rest string) {
	text = strings.TrimLeft(text, " ([>=:-")
	r, size := utf8.DecodeRuneInString(text)
	kind := func(r rune) int {
		switch {
		case unicode.IsDigit(r):
			return 1
		case unicode.IsLetter(r), unicode.IsMark(r):
			return 2
		}
		return 0
	}
	end := size
	for k := kind(r); k > 0 && end < len(text); end += size {
		if r, size = utf8.DecodeRuneInString(text[end:]); kind(r) != k {
			break
		}
	}
	return strings.ToLower(text[:end]), text[end:]
}

// maxPlaceTokens is how many words saidPlace reads at most to find a number or an ordinal.
const maxPlaceTokens = 5

// saidPlace reads a place at the beginning of text, such as "second", "2nd", "#2", "in second place", "Platz 2" or
// "第二名". It returns the place, and the text after the place. A number alone is not a place, because it may be a score.
func saidPlace(text string) (place int, rest string, ok bool) {
	named := false
	for range maxPlaceTokens {
		var word string
		if word, text = token(text); word == "" {
			return 0, "", false
		}
		var number bool
		if place, number = ordinal[word]; number {
			named = true
		} else if n, err := strconv.Atoi(word); err == nil && len(word) <= 3 {
			place = n
			number = true
			ending, behind := token(strings.TrimLeft(text, "."))
			if listed(placeEndings, ending) && !strings.HasPrefix(text, " ") {
				named = true
				text = behind
			}
		}
		switch {
		case number:
			if noun, behind := token(strings.TrimLeft(text, ".")); listed(placeWords, noun) {
				named = true
				text = behind
			}
			return place, text, named
		case listed(placeWords, word):
			named = true
		case !listed(placeFillers, word):
			return 0, "", false
		}
	}
	return 0, "", false
}

// afterPlace matches what may follow a place at the beginning of a note.
var afterPlace = regexp.MustCompile(`^\s*(?:$|[)\].,;:|(-])`)

// notePlace reads the place at the beginning of a note.
func notePlace(note string) (place int, ok bool) {
	place, rest, ok := saidPlace(note)
	return place, ok && afterPlace.MatchString(rest)
}

// said brings entries without numbers into the order that their notes give. It returns false in three cases:
//
//   - A note calls an entry the best although the entry is not first, or the worst although the entry is not last.
//   - The notes give places that differ from the order of the list and are not a complete ranking.
//   - No note gives a place, all notes are short, and the entries are in the order of the slate. The notes may then be
//     places in words that the parser does not know.
func (s labelSet) said(entries []entry) bool {
	places := make([]int, len(entries))
	count := 0
	asListed := true
	brief := true
	for i, e := range entries {
		if place, ok := notePlace(e.note); ok {
			places[i] = place
			count++
			asListed = asListed && place == i+1
		} else if misplaced(e.note, i == 0, i == len(entries)-1) {
			return false
		}
		brief = brief && isBrief(e.note)
	}
	switch {
	case count > 0 && asListed:
		return true
	case count == 0:
		return !brief || len(entries) < 2 || !s.slateOrder(entries)
	case count < len(entries) || !ranks(places):
		return false
	}
	for i := range entries {
		entries[i].rank = places[i]
	}
	return true
}

// isBrief reports whether a note has one or two words and no score.
func isBrief(note string) bool {
	words := len(strings.Fields(note))
	return 0 < words && words <= 2 && !outOfTen.MatchString(note)
}

// misplaced reports whether a note calls an answer the best although it is not first in the list, or the worst
// although it is not last.
func misplaced(note string, first, last bool) bool {
	word, rest := token(note)
	if listed(placeFillers, word) { // "the best", "am besten"
		word, _ = token(rest)
	}
	return !first && listed(bestWords, word) || !last && listed(worstWords, word)
}

// slateOrder reports whether entries name one label each, in the order of the slate.
func (s labelSet) slateOrder(entries []entry) bool {
	last := -1
	for _, e := range entries {
		if len(e.labels) != 1 {
			return false
		}
		at := slices.Index(s.labels, e.labels[0])
		if at < last {
			return false
		}
		last = at
	}
	return true
}

// ranks reports whether numbers are the places of a ranking in some order: 1, 2, 3, with ties as 1, 1, 2 or 1, 1, 3.
func ranks(places []int) bool {
	sorted := slices.Sorted(slices.Values(places))
	for i, place := range sorted {
		next := i+1 == place
		if i > 0 {
			next = next || place == sorted[i-1] || place == sorted[i-1]+1
		}
		if !next {
			return false
		}
	}
	return len(sorted) < 2 || sorted[len(sorted)-1] > 1
}

// medals replaces the signs of places by ordinals.
var medals = strings.NewReplacer( //nolint:gochecknoglobals // made once
	"🥇", "(1st) ", "🥈", "(2nd) ", "🥉", "(3rd) ",
	"①", "(1st) ", "②", "(2nd) ", "③", "(3rd) ", "④", "(4th) ", "⑤", "(5th) ",
	"⑥", "(6th) ", "⑦", "(7th) ", "⑧", "(8th) ", "⑨", "(9th) ",
)

// isMedal reports whether r is a medal or a digit in a circle. The replacer medals turns these into places.
func isMedal(r rune) bool { return '🥇' <= r && r <= '🥉' || '①' <= r && r <= '⑨' }
