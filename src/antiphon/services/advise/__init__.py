"""Which order each operation of a service needs: ``antiphon advise``.

``values`` draws arguments from types. ``repeats`` looks for operations that do not do the same twice. ``pairs`` runs
two calls in both orders on stores in memory and says what is wrong with them, and ``search`` looks for such pairs and
makes them small. ``needs`` decides from the pairs which operations need total order. ``world`` runs whole schedules of
calls on the protocols of the product in the simulator. ``advisor`` does all of that, and ``report`` words it. Start
reading at ``pairs.py``.

Imports the declarations, calls and stores of services, and the simulator. Hypothesis is an extra, ``advise``.
"""

from __future__ import annotations
