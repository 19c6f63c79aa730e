// How the site's search ranks pages: a page whose own title has the words asked for comes first,
// and pages of figures and changes, which name every word, come last.
var Scorer = {
  score: ([page, title, anchor, , score]) => {
    const asked = new URLSearchParams(location.search).get("q") || "";
    const words = asked.toLowerCase().match(/[a-z0-9-]+/g) || [];
    const own = anchor ? "" : title.toLowerCase();
    const named = words.filter((word) => own.includes(word.replace(/s$/, ""))).length;
    const isAside = /CHANGELOG|docs\/(benchmarks|experiments|growth|harm|matrix|mutants|protocol|reproduction)$/.test(page);
    return score + (words.length ? 40 * named / words.length : 0) - (isAside ? 20 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
