"""Delays between cities, computed from where they are: a table of our own making, for trials without measurements.

A delay follows from the length of the great circle between two cities. Light in glass takes 5 microseconds per
kilometre. Cables do not follow great circles, and routers wait, so the time is multiplied by ``INFLATION``; each end
adds ``ACCESS_US`` for the way from a machine to the long cable. Both numbers are choices, not measurements. Measured
delays are less regular, so conclusions need a measured matrix too.
"""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt
from typing import Final, NamedTuple

from antiphon.kernel.errors import UsageError
from antiphon.placement.delay_matrix import DelayMatrix

EARTH_KM: Final = 6371.0
GLASS_US_PER_KM: Final = 5.0
INFLATION: Final = 1.9
ACCESS_US: Final = 500


class City(NamedTuple):
    """A city and where it is, in degrees; south and west are negative."""

    name: str
    latitude: float
    longitude: float


TABLE: Final = """
London 51.5 -0.1|New York 40.7 -74.0|Tokyo 35.7 139.7|Frankfurt 50.1 8.7|Singapore 1.4 103.8|San Francisco 37.8 -122.4
Sydney -33.9 151.2|Sao Paulo -23.6 -46.6|Mumbai 19.1 72.9|Johannesburg -26.2 28.0|Paris 48.9 2.4|Chicago 41.9 -87.6
Hong Kong 22.3 114.2|Toronto 43.7 -79.4|Amsterdam 52.4 4.9|Dubai 25.2 55.3|Los Angeles 34.1 -118.2|Seoul 37.6 127.0
Stockholm 59.3 18.1|Madrid 40.4 -3.7|Dallas 32.8 -96.8|Buenos Aires -34.6 -58.4|Warsaw 52.2 21.0|Cairo 30.0 31.2
Moscow 55.8 37.6|Mexico City 19.4 -99.1|Milan 45.5 9.2|Seattle 47.6 -122.3|Nairobi -1.3 36.8|Osaka 34.7 135.5
Delhi 28.6 77.2|Lagos 6.5 3.4|Miami 25.8 -80.2|Bangkok 13.8 100.5|Vienna 48.2 16.4|Santiago -33.4 -70.7
Melbourne -37.8 145.0|Istanbul 41.0 29.0|Washington 38.9 -77.0|Taipei 25.0 121.6|Dublin 53.3 -6.3|Lisbon 38.7 -9.1
Atlanta 33.7 -84.4|Jakarta -6.2 106.8|Copenhagen 55.7 12.6|Bogota 4.7 -74.1|Denver 39.7 -105.0|Tel Aviv 32.1 34.8
Zurich 47.4 8.5|Cape Town -33.9 18.4|Auckland -36.8 174.8|Montreal 45.5 -73.6|Helsinki 60.2 24.9|Chennai 13.1 80.3
Lima -12.0 -77.0|Prague 50.1 14.4|Boston 42.4 -71.1|Manila 14.6 121.0|Oslo 59.9 10.8|Rome 41.9 12.5
Vancouver 49.3 -123.1|Casablanca 33.6 -7.6|Athens 38.0 23.7|Kuala Lumpur 3.1 101.7|Brussels 50.9 4.4
Phoenix 33.4 -112.1|Barcelona 41.4 2.2|Karachi 24.9 67.0|Rio de Janeiro -22.9 -43.2|Berlin 52.5 13.4
Houston 29.8 -95.4|Hanoi 21.0 105.9|Bucharest 44.4 26.1|Accra 5.6 -0.2|Perth -32.0 115.9|Minneapolis 45.0 -93.3
Budapest 47.5 19.0|Dhaka 23.8 90.4|Riyadh 24.7 46.7|Munich 48.1 11.6|Caracas 10.5 -66.9|Portland 45.5 -122.7
Kyiv 50.5 30.5|Shanghai 31.2 121.5|Hamburg 53.6 10.0|Addis Ababa 9.0 38.7|Colombo 6.9 79.9|Salt Lake City 40.8 -111.9
Sofia 42.7 23.3|Brisbane -27.5 153.0|Marseille 43.3 5.4|Panama City 9.0 -79.5|Beijing 39.9 116.4|Tunis 36.8 10.2
Las Vegas 36.2 -115.1|Manchester 53.5 -2.2|Bangalore 13.0 77.6|Quito -0.2 -78.5|Belgrade 44.8 20.5
Philadelphia 40.0 -75.2|Dakar 14.7 -17.5|Fukuoka 33.6 130.4|Riga 56.9 24.1|Baghdad 33.3 44.4|Porto Alegre -30.0 -51.2
Kansas City 39.1 -94.6|Zagreb 45.8 16.0|Hyderabad 17.4 78.5|Edinburgh 55.9 -3.2|Montevideo -34.9 -56.2
Kinshasa -4.3 15.3|Tallinn 59.4 24.7|San Jose 9.9 -84.1|Ho Chi Minh City 10.8 106.7|Lyon 45.8 4.8|Honolulu 21.3 -157.9
Almaty 43.2 76.9|Reykjavik 64.1 -21.9|Adelaide -34.9 138.6|Medellin 6.2 -75.6|Vilnius 54.7 25.3
Dar es Salaam -6.8 39.3|Sapporo 43.1 141.4|Geneva 46.2 6.1|Tashkent 41.3 69.2|Calgary 51.0 -114.1
Wellington -41.3 174.8|Antananarivo -18.9 47.5
"""


def cities_in(table: str) -> tuple[City, ...]:
    """The cities of a table: a name and two numbers each, between bars and ends of lines."""
    found = []
    for entry in table.strip().replace("\n", "|").split("|"):
        name, latitude, longitude = entry.rsplit(" ", 2)
        found.append(City(name, float(latitude), float(longitude)))
    return tuple(found)


CITIES: Final = cities_in(TABLE)


def kilometres(one: City, other: City) -> float:
    """The length of the great circle between two cities."""
    half_latitude = radians(other.latitude - one.latitude) / 2
    half_longitude = radians(other.longitude - one.longitude) / 2
    shares = sin(half_latitude) ** 2
    shares += cos(radians(one.latitude)) * cos(radians(other.latitude)) * sin(half_longitude) ** 2
    return 2 * EARTH_KM * asin(min(1.0, sqrt(shares)))


def delay_us(one: City, other: City) -> int:
    """The delay of one direction."""
    return 0 if one is other else round(INFLATION * GLASS_US_PER_KM * kilometres(one, other)) + 2 * ACCESS_US


def between_cities(count: int = len(CITIES)) -> DelayMatrix:
    """The delays between the first so many cities of the table, which are all over the world."""
    if not 2 <= count <= len(CITIES):
        raise UsageError(f"the table has {len(CITIES)} cities; choose from 2 to {len(CITIES)} of them, not {count}")
    chosen = CITIES[:count]
    return DelayMatrix(
        tuple(city.name for city in chosen), [[delay_us(one, other) for other in chosen] for one in chosen]
    )
