"""The parts of a core, each built on first access.

Each part's dependencies are written once, where it is built, so no order of construction has to be
kept. A cycle of dependencies would recurse for ever; a test builds all parts, starting from each.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import attrs

from router.core.announce import Announcer
from router.core.attach import Attacher
from router.core.bounds import Bounds
from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.dial_in import DialIns
from router.core.dismiss import Dismisser
from router.core.drain import Drainer
from router.core.events import Events
from router.core.fallback import Fallbacks
from router.core.filtering import Filtering
from router.core.forms import Forms
from router.core.forward import Forwarder
from router.core.govern import Governor
from router.core.guests import Guests
from router.core.homes import Homes
from router.core.lanes import Express, Lanes
from router.core.listing import Lister
from router.core.loads import Loads
from router.core.memories import Memories
from router.core.mesh.control import Control
from router.core.mesh.reports import PathReporter, ReportedPaths
from router.core.mesh.sites import Sites
from router.core.mesh.ways import SiteWays
from router.core.network import Network
from router.core.passage import Passages
from router.core.pausing import Pauser
from router.core.polls import Polls
from router.core.postponing import Postponer
from router.core.pulls import Pulls
from router.core.reach import Reach
from router.core.refusals import Refusals
from router.core.relay import Relay
from router.core.reload import Reloader
from router.core.resolve import Resolver
from router.core.restore import DecodeState, Restorer
from router.core.restore_wait import RestoreWait
from router.core.resume import Resumer
from router.core.routeless import Routeless
from router.core.settle import Settler
from router.core.state import State
from router.core.storing import Storer
from router.core.stream import Streams
from router.core.surplus import Surplus
from router.core.survey import Surveyor
from router.core.suspend import Suspender
from router.core.turning import Turner
from router.core.unroutable import Strander
from router.core.uplinks import Uplinks
from router.core.watch import Watchers
from router.core.ways import WayFinder
from router.model.identity import LinkId
from router.routes.mesh.bodies import Notary
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.paths import Paths


@attrs.define(eq=False, slots=False, kw_only=True)
class Parts:
    """The parts of one core.

    Attributes:
        state: what all of them share.
        link_ids: shared with the engines, so that ids are unique in the worker.
        express: the worker's express lane; None: there is none.
        containers: names of the containers that this worker dials; None: all.
        homes: which worker keeps exactly-once links.
        memory: state that the worker's engines keep for peers that reconnect.
        random: numbers from 0 up to 1, for jitter.
        make_token: returns unguessable names for dynamic nodes.
    """

    state: State
    link_ids: Iterator[LinkId]
    express: Express | None
    containers: frozenset[str] | None
    homes: Homes
    memory: dict[str, object]
    random: Callable[[], float]
    make_token: Callable[[], str]

    # Deliveries

    @cached_property
    def settler(self) -> Settler:
        """Forwards states and settlement."""
        return Settler(self.state)

    @cached_property
    def granter(self) -> Granter:
        """Grants and withdraws credit."""
        return Granter(self.state)

    @cached_property
    def streams(self) -> Streams:
        """Forwards deliveries in parts."""
        return Streams(self.state, self.settler, self.granter)

    @cached_property
    def forms(self) -> Forms:
        """Converts deliveries to their outgoing form."""
        return Forms(self.state)

    @cached_property
    def forwarder(self) -> Forwarder:
        """Forwards deliveries."""
        return Forwarder(
            self.state,
            self.settler,
            self.streams,
            self.resumer,
            self.forms,
            granter=self.granter,
            goes_over=self.turner.goes_over,
        )

    @cached_property
    def turner(self) -> Turner:
        """Redirects deliveries from routers to the receivers here."""
        return Turner(self.state)

    @cached_property
    def strander(self) -> Strander:
        """Handles deliveries that no receiver can take."""
        return Strander(
            self.state,
            self.settler,
            self.uplinks,
            self.detacher,
            refusals=self.refusals,
            goes_over=self.turner.goes_over,
        )

    @cached_property
    def refusals(self) -> Refusals:
        """Handles the outcomes by which targets refuse what they have no binding for."""
        return Refusals(self.state, self.settler)

    @cached_property
    def postponer(self) -> Postponer:
        """Keeps deliveries that are retried later."""
        return Postponer(self.state, self.settler, self.random)

    @cached_property
    def pulls(self) -> Pulls:
        """Forwards deliveries that are pulled by pattern."""
        return Pulls(self.forwarder, self.relay, self.postponer, self.fallbacks)

    @cached_property
    def fallbacks(self) -> Fallbacks:
        """Uses the fallbacks of routes, and pulls back from them."""
        return Fallbacks(
            self.state,
            self.settler,
            self.granter,
            self.uplinks,
            lanes=self.lanes,
            postponer=self.postponer,
            reach=self.reach,
        )

    @cached_property
    def storer(self) -> Storer:
        """Chooses who is sent the messages of stored routes."""
        return Storer(
            self.state,
            self.granter,
            self.uplinks,
            settler=self.settler,
            lanes=self.lanes,
            reach=self.reach,
        )

    @cached_property
    def relay(self) -> Relay:
        """Finds the nodes of deliveries to the anonymous terminus."""
        return Relay(
            self.state,
            self.settler,
            self.forwarder,
            self.attacher,
            self.uplinks,
            detacher=self.detacher,
            homes=self.homes,
            postponer=self.postponer,
            refusals=self.refusals,
        )

    @cached_property
    def resolver(self) -> Resolver:
        """Resolves deliveries in doubt as an operator decides."""
        return Resolver(self.state, self.settler, self.uplinks)

    # Links

    @cached_property
    def lanes(self) -> Lanes:
        """Puts nodes on the express lane and takes them off it."""
        return Lanes(self.state, self.settler, self.express)

    @cached_property
    def suspender(self) -> Suspender:
        """Keeps suspended links and their deliveries."""
        return Suspender(self.state, self.settler, self.granter, self.streams)

    @cached_property
    def resumer(self) -> Resumer:
        """Resumes links: joins the unsettled maps of both ends."""
        return Resumer(
            self.state,
            self.settler,
            self.granter,
            self.streams,
            suspender=self.suspender,
            forms=self.forms,
        )

    @cached_property
    def detacher(self) -> Detacher:
        """Ends links."""
        return Detacher(
            self.state,
            self.settler,
            self.granter,
            self.streams,
            lanes=self.lanes,
            suspender=self.suspender,
            reach=self.reach,
            postponer=self.postponer,
        )

    @cached_property
    def attacher(self) -> Attacher:
        """Answers peers that attach links."""
        return Attacher(
            self.state,
            self.granter,
            self.detacher,
            self.uplinks,
            bounds=self.bounds,
            reach=self.reach,
            resumer=self.resumer,
            sites=self.sites,
            suspender=self.suspender,
            make_token=self.make_token,
        )

    @cached_property
    def uplinks(self) -> Uplinks:
        """Keeps our own links to containers and siblings."""
        return Uplinks(
            self.state,
            self.granter,
            self.detacher,
            lanes=self.lanes,
            suspender=self.suspender,
            reach=self.reach,
            resumer=self.resumer,
            link_ids=self.link_ids,
            random=self.random,
        )

    @cached_property
    def polls(self) -> Polls:
        """Answers receivers that ask whether a delivery is available."""
        return Polls(self.state, self.granter, self.uplinks, self.network)

    @cached_property
    def watchers(self) -> Watchers:
        """Reports senders to the watchers of a pattern."""
        return Watchers(self.state, self.network, self.granter, self.bounds)

    # Other workers and routers

    @cached_property
    def reach(self) -> Reach:
        """Knows what can be reached through which worker or router."""
        router = RouterId(self.state.settings.router_id)
        sites = SiteWays(
            router,
            self._find_paths,
            self._find_place,
            find_edge=lambda: self.mesh.edge,
            find_notary=self._find_notary,
        )
        return Reach(self.containers, sites)

    def _find_paths(self) -> Paths | None:
        """Returns the paths of the mesh; None: this router is in none."""
        mesh = self.mesh.mesh
        return self.reported_paths.paths if mesh is None else mesh.paths

    def _find_place(self) -> str | None:
        """Returns the worker that has the mesh's connections; None: this one."""
        return None if self.mesh.mesh is not None else self.reported_paths.place

    def _find_notary(self) -> Notary | None:
        """Returns who signs for this router in the mesh; None: this router is in none."""
        return self.mesh.notary

    @cached_property
    def network(self) -> Network:
        """Exchanges advertisements with the other workers."""
        network = Network(
            self.state,
            self.reach,
            self.uplinks,
            lanes=self.lanes,
            detacher=self.detacher,
            link_ids=self.link_ids,
        )
        network.on_path = self.reported_paths.take
        network.on_receivers = self.sites.received_elsewhere
        self.sites.on_edges = network.receives
        return network

    @cached_property
    def announcer(self) -> Announcer:
        """Holds back answers until the other workers know the receivers."""
        return Announcer(self.state, self.network, self.attacher)

    @cached_property
    def filtering(self) -> Filtering:
        """Holds back answers until containers apply the filters of receivers."""
        return Filtering(self.state, self.uplinks, self.attacher, self.make_token)

    @cached_property
    def dial_ins(self) -> DialIns:
        """Knows which accepted connections are configured containers."""
        return DialIns(self.state, self.uplinks, self.network, self.reach)

    @cached_property
    def loads(self) -> Loads:
        """Advertises the number of receivers and their load to the other workers."""
        return Loads(self.state, self.network, self.lanes)

    @cached_property
    def surplus(self) -> Surplus:
        """Has what waits here go where receivers have credit."""
        return Surplus(self.state, self.settler, self.granter, self.lanes)

    @cached_property
    def ways(self) -> WayFinder:
        """Reports ways to receivers to other routers."""
        return WayFinder(self.state, self.granter, self.lanes)

    @cached_property
    def passages(self) -> Passages:
        """Leads links through to the worker that keeps them."""
        passages = Passages(self.state, self.attacher, self.sites, self.link_ids, self.homes)
        self.mesh.followers.append(passages.ways_changed)
        return passages

    @cached_property
    def mesh(self) -> Control:
        """Talks to the neighbors of the mesh."""
        return Control(self.state, self.uplinks, self.link_ids)

    @cached_property
    def path_reporter(self) -> PathReporter:
        """Reports the paths of the mesh to the other workers."""
        return PathReporter(self.state, self.network, self.mesh)

    @cached_property
    def reported_paths(self) -> ReportedPaths:
        """Knows the paths of the mesh from the worker with its connections."""
        paths = ReportedPaths(self.state)
        paths.on_paths = self.sites.paths_changed
        return paths

    @cached_property
    def sites(self) -> Sites:
        """Keeps nodes and mesh in step."""
        return Sites(self.state, self.mesh, self.reach, self.uplinks)

    @cached_property
    def guests(self) -> Guests:
        """Knows the peers behind links that were led through."""
        return Guests(self.state, self.governor)

    @cached_property
    def memories(self) -> Memories:
        """Moves the state that engines keep to the worker that the peer reconnects to."""
        return Memories(self.state, self.link_ids, self.passages, self.memory)

    # Policy and operations

    @cached_property
    def bounds(self) -> Bounds:
        """Knows which addresses a peer may use."""
        return Bounds(self.state.registry, self.reach, self.state.settings.router_id)

    @cached_property
    def governor(self) -> Governor:
        """Enforces the policy."""
        return Governor(self.state, self.detacher, self.reach, self.bounds)

    @cached_property
    def routeless(self) -> Routeless:
        """Keeps unsettled deliveries of removed routes."""
        return Routeless(
            self.state,
            self.detacher,
            self.suspender,
            self.resumer,
            uplinks=self.uplinks,
            attacher=self.attacher,
        )

    @cached_property
    def reloader(self) -> Reloader:
        """Puts another routing table into force."""
        return Reloader(
            self.state,
            self.detacher,
            self.resumer,
            uplinks=self.uplinks,
            lanes=self.lanes,
            routeless=self.routeless,
        )

    @cached_property
    def pauser(self) -> Pauser:
        """Pauses routes."""
        return Pauser(self.state, self.granter, self.lanes)

    @cached_property
    def drainer(self) -> Drainer:
        """Drains the core when the router stops."""
        return Drainer(
            self.state,
            self.granter,
            self.detacher,
            self.uplinks,
            lanes=self.lanes,
            passages=self.passages,
            postponer=self.postponer,
        )

    @cached_property
    def dismisser(self) -> Dismisser:
        """Closes one connection when its open deliveries have ended."""
        return Dismisser(self.state, self.granter, self.lanes)

    @cached_property
    def surveyor(self) -> Surveyor:
        """Surveys the core."""
        return Surveyor(self.state, self.uplinks, self.granter, self.lanes)

    @cached_property
    def lister(self) -> Lister:
        """Lists links and deliveries."""
        return Lister(self.state.registry, self.lanes, self.surveyor.ages)

    def restorer(self, decode: DecodeState) -> Restorer:
        """Makes the restorer of an earlier life's deliveries; called once."""
        return Restorer(
            self.state,
            self.settler,
            self.detacher,
            self.suspender,
            uplinks=self.uplinks,
            attacher=self.attacher,
            routeless=self.routeless,
            decode=decode,
        )

    # Events

    @cached_property
    def events(self) -> Events:
        """Dispatches each event to the parts that it concerns."""
        return Events(
            state=self.state,
            announcer=self.announcer,
            filtering=self.filtering,
            dial_ins=self.dial_ins,
            attacher=self.attacher,
            detacher=self.detacher,
            forwarder=self.forwarder,
            governor=self.governor,
            granter=self.granter,
            guests=self.guests,
            lanes=self.lanes,
            memories=self.memories,
            mesh=self.mesh,
            network=self.network,
            passages=self.passages,
            pulls=self.pulls,
            refusals=self.refusals,
            relay=self.relay,
            restore_wait=RestoreWait(self.state, self.homes),
            resumer=self.resumer,
            settler=self.settler,
            streams=self.streams,
            surplus=self.surplus,
            uplinks=self.uplinks,
            watchers=self.watchers,
            ways=self.ways,
        )
