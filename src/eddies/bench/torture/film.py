"""A film database in which everything depends on everything, and queries that join much of it.

In the style of the Join Order Benchmark, with tables and queries of our own. Three things make such
data hard for an optimizer that multiplies selectivities:

* a film's country all but decides the country of its companies and people and its language;
* its genre decides its keywords and, with its kind, the roles in it;
* popular films have many of everything, so that joining two lists of a film multiplies them.

Each query names several properties that mean nearly the same, so that estimates are too low by
orders of magnitude, and lists that grow together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddies.bench.data import Tables

__all__ = ["FILM_QUERIES", "film_database"]

Ints = npt.NDArray[np.int64]

SEED = 11
COUNTRIES = (
    "us",
    "jp",
    "fr",
    "in",
    "uk",
    "de",
    "it",
    "kr",
    "es",
    "br",
    "se",
    "pl",
    "mx",
    "ng",
    "ar",
)
LANGUAGES = ("english", "japanese", "french", "hindi", "english", "german", "italian", "korean")
GENRES = ("drama", "comedy", "animation", "action", "horror", "romance", "crime", "documentary")
KINDS = ("film", "series", "short", "game")
ROLES = ("actor", "voice", "director", "writer", "composer", "editor")
COMPANY_TYPES = ("production", "distribution", "effects", "sound")
INFO_TYPES = ("language", "genre", "certificate", "runtime", "budget", "sound mix")
ANIMATION, SERIES, VOICE = 2, 1, 1
KEYWORDS_OF_GENRE = 500

FILM_QUERIES = {
    "film7": """
SELECT count(*) AS n, min(t.title) AS first_title, max(c.name) AS last_company
FROM company c, movie_company mc, company_type ct, title t, kind k, movie_keyword mk, keyword w
WHERE c.id = mc.company_id AND ct.id = mc.type_id AND t.id = mc.movie_id AND k.id = t.kind_id
  AND mk.movie_id = t.id AND mk.movie_id = mc.movie_id AND w.id = mk.keyword_id
  AND c.country = 'jp' AND ct.name = 'production' AND k.name = 'series' AND w.genre = 'animation'
  AND t.country = 'jp'""",
    "film9": """
SELECT count(*) AS n, min(t.title) AS first_title, min(p.name) AS first_person
FROM person p, cast_info ci, role r, movie_info mi, info_type it, title t, movie_keyword mk,
  keyword w, kind k
WHERE p.id = ci.person_id AND r.id = ci.role_id AND ci.movie_id = t.id AND mi.movie_id = t.id
  AND it.id = mi.type_id AND mk.movie_id = t.id AND w.id = mk.keyword_id AND k.id = t.kind_id
  AND ci.movie_id = mi.movie_id AND mi.movie_id = mk.movie_id AND mk.movie_id = ci.movie_id
  AND p.country = 'kr' AND r.name = 'voice' AND it.name = 'language' AND mi.value = 'korean'
  AND w.genre = 'animation' AND t.year > 1990""",
    "film12": """
SELECT count(*) AS n, min(t.title) AS first_title, min(p.name) AS first_person,
  max(c.name) AS last_company
FROM cast_info ci, movie_keyword mk, movie_company mc, movie_info mi, keyword w, company c, person p,
  role r, info_type it, company_type ct, kind k, title t
WHERE ci.movie_id = t.id AND mk.movie_id = t.id AND mc.movie_id = t.id AND mi.movie_id = t.id
  AND ci.movie_id = mk.movie_id AND mk.movie_id = mc.movie_id AND mc.movie_id = mi.movie_id
  AND w.id = mk.keyword_id AND c.id = mc.company_id AND p.id = ci.person_id AND r.id = ci.role_id
  AND it.id = mi.type_id AND ct.id = mc.type_id AND k.id = t.kind_id
  AND c.country = 'se' AND p.country = 'se' AND r.name = 'voice' AND w.genre = 'animation'
  AND it.name = 'genre' AND mi.value = 'animation' AND ct.name = 'production' AND k.name = 'series'
  AND t.country = 'se'""",
}


def film_database(scale: float) -> Tables:
    """Twelve tables; a million titles with six million people in them at full size."""
    rng = np.random.default_rng(SEED)
    n_titles = max(200, round(1_000_000 * scale))
    country = _zipf(rng, len(COUNTRIES), n_titles, 0.8)
    genre = rng.integers(0, len(GENRES), n_titles)
    likes_series = genre == ANIMATION
    kind = np.where(
        likes_series & (rng.random(n_titles) < 0.7), SERIES, _zipf(rng, 4, n_titles, 1.5)
    )
    popularity = (1 - rng.random(n_titles)) ** -0.6  # a few films have a hundred times the rest
    tables = {
        "kind": _names(KINDS),
        "role": _names(ROLES),
        "company_type": _names(COMPANY_TYPES),
        "info_type": _names(INFO_TYPES),
        "keyword": pa.table(
            {
                "id": np.arange(len(GENRES) * KEYWORDS_OF_GENRE),
                "genre": np.repeat(np.array(GENRES), KEYWORDS_OF_GENRE),
            }
        ),
        "title": pa.table(
            {
                "id": np.arange(n_titles),
                "title": _texts("title", rng.permutation(n_titles)),
                "kind_id": kind,
                "country": np.array(COUNTRIES)[country],
                "year": 2020 - (rng.random(n_titles) ** 2 * 80).astype(np.int64),
            }
        ),
    }
    tables |= _cast(rng, country, genre, kind, popularity)
    tables |= _companies(rng, country, popularity)
    tables["movie_keyword"] = _keywords(rng, genre, popularity)
    tables["movie_info"] = _infos(rng, country, genre, popularity)
    return tables


def _cast(
    rng: np.random.Generator,
    country: Ints,
    genre: Ints,
    kind: Ints,
    popularity: npt.NDArray[np.float64],
) -> Tables:
    movie = _list_of(rng, popularity, 6, 300)
    n_rows, n_people = len(movie), max(50, len(country))
    home = np.sort(_zipf(rng, len(COUNTRIES), n_people, 0.8))
    is_voiced = (genre[movie] == ANIMATION) & (rng.random(n_rows) < 0.8)
    role = np.where(is_voiced, VOICE, _zipf(rng, len(ROLES), n_rows, 1.2))
    role = np.where(~is_voiced & (role == VOICE), 0, role)
    return {
        "person": pa.table(
            {
                "id": np.arange(n_people),
                "name": _texts("person", rng.permutation(n_people)),
                "country": np.array(COUNTRIES)[home],
            }
        ),
        "cast_info": pa.table(
            {
                "movie_id": movie,
                "person_id": _of_country(rng, home, country[movie], 0.92),
                "role_id": role,
            }
        ),
    }


def _companies(
    rng: np.random.Generator, country: Ints, popularity: npt.NDArray[np.float64]
) -> Tables:
    movie = _list_of(rng, popularity, 1.5, 40)
    n_companies = max(40, len(country) // 10)
    home = np.sort(_zipf(rng, len(COUNTRIES), n_companies, 0.8))
    return {
        "company": pa.table(
            {
                "id": np.arange(n_companies),
                "name": _texts("company", rng.permutation(n_companies)),
                "country": np.array(COUNTRIES)[home],
            }
        ),
        "movie_company": pa.table(
            {
                "movie_id": movie,
                "company_id": _of_country(rng, home, country[movie], 0.9),
                "type_id": _zipf(rng, len(COMPANY_TYPES), len(movie), 1.0),
            }
        ),
    }


def _keywords(
    rng: np.random.Generator, genre: Ints, popularity: npt.NDArray[np.float64]
) -> pa.Table:
    movie = _list_of(rng, popularity, 3, 120)
    is_own = rng.random(len(movie)) < 0.9
    of_genre = np.where(is_own, genre[movie], rng.integers(0, len(GENRES), len(movie)))
    keyword = of_genre * KEYWORDS_OF_GENRE + _zipf(rng, KEYWORDS_OF_GENRE, len(movie), 0.7)
    return pa.table({"movie_id": movie, "keyword_id": keyword})


def _infos(
    rng: np.random.Generator, country: Ints, genre: Ints, popularity: npt.NDArray[np.float64]
) -> pa.Table:
    movie = _list_of(rng, popularity, 3, 60)
    n_rows = len(movie)
    kind_of_info = rng.integers(0, len(INFO_TYPES), n_rows)
    language = np.array(LANGUAGES)[np.minimum(country[movie], len(LANGUAGES) - 1)]
    other = _texts("value", rng.integers(0, 1000, n_rows))
    value = np.where(
        kind_of_info == 0,
        language,
        np.where(kind_of_info == 1, np.array(GENRES)[genre[movie]], other),
    )
    return pa.table({"movie_id": movie, "type_id": kind_of_info, "value": value})


def _list_of(
    rng: np.random.Generator, popularity: npt.NDArray[np.float64], mean: float, longest: int
) -> Ints:
    """A film's id as often as it has entries in a list: more for popular films."""
    wanted = np.minimum(rng.poisson(mean * popularity / popularity.mean()), longest)
    return rng.permutation(np.repeat(np.arange(len(popularity)), wanted))


def _of_country(rng: np.random.Generator, home: Ints, wanted: Ints, share: float) -> Ints:
    """For every row somebody whose home (sorted) is the wanted country, or, now and then, anybody."""
    begin, end = np.searchsorted(home, wanted), np.searchsorted(home, wanted, side="right")
    is_own = (rng.random(len(wanted)) < share) & (begin < end)
    own = begin + (rng.random(len(wanted)) * (end - begin)).astype(np.int64)
    return np.where(is_own, own, rng.integers(0, len(home), len(wanted)))


def _zipf(rng: np.random.Generator, n_kinds: int, n_rows: int, skew: float) -> Ints:
    cumulated = np.cumsum(np.arange(1, n_kinds + 1) ** -skew)
    ranks = np.searchsorted(cumulated / cumulated[-1], rng.random(n_rows))
    return np.minimum(ranks, n_kinds - 1).astype(np.int64)


def _texts(word: str, numbers: Ints) -> npt.NDArray[np.str_]:
    return np.char.add(f"{word} ", numbers.astype("U12"))


def _names(names: tuple[str, ...]) -> pa.Table:
    return pa.table({"id": np.arange(len(names)), "name": np.array(names)})
