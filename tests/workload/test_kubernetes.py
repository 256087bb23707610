"""Tests of ``svc.workload.kubernetes``: the token that a pod has, and what it says of the pod."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.workload.evidence import TOKEN_LIMIT, Jwt
from svc.workload.faults import NoIdentity
from svc.workload.kubernetes import Pod, ProjectedToken
from tests.workload.test_machine import token
from tests.workload.wire import NOW, clock

#: What a projected token of version 1.30 says, its times aside.
CLAIMS: dict[str, object] = {
    "aud": ["https://svc.example.org"],
    "exp": NOW + 600,
    "iss": "https://kubernetes.default.svc.cluster.local",
    "kubernetes.io": {
        "namespace": "shop",
        "node": {"name": "node-1", "uid": "646e7c5e-32d6-4d42-9dbd-e504e6cbe6b1"},
        "pod": {"name": "billing-0", "uid": "5e0bd49b-f040-43b0-99b7-22765a53f7f3"},
        "serviceaccount": {"name": "billing", "uid": "14ee3fa4-a7e2-420f-9f9a-dbc4507c3798"},
    },
    "sub": "system:serviceaccount:shop:billing",
}


class ProjectedTokenTests(SynchronousTestCase):
    """The token in a file."""

    def setUp(self) -> None:
        """Have an empty folder."""
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.file = self.folder / "svc"
        self.source = ProjectedToken(self.file, clock())

    def refusal(self, source: ProjectedToken | None = None) -> str:
        """Why there is no token, and what to do."""
        return str(self.assertRaises(NoIdentity, source or self.source))

    def test_read_for_each_login(self) -> None:
        """Each login reads the file again, since the kubelet replaces it; the request is that of a JWT (CLI-45)."""
        evidence = Jwt("k8s", self.source)
        for end in (600, 1200):
            text = token({**CLAIMS, "exp": NOW + end})
            self.file.write_text(text + "\n")
            login = self.successResultOf(Deferred.fromCoroutine(evidence.login("acme")))
            self.assertEqual(login.segments, ("authn-jwt", "k8s", "acme", "authenticate"))
            self.assertEqual(login.body, b"jwt=" + text.encode())

    def test_none(self) -> None:
        """Without a file, or with something else in it, the fault says what to mount."""
        self.assertIn("cannot be read: No such file", self.refusal())
        for text in (b"", b"x", b"\xff", b"e30.e30", b"a" * (TOKEN_LIMIT + 1)):
            self.file.write_bytes(text)
            self.assertIn("mount a projected service account token there, with this server's audience", self.refusal())

    def test_never_sent(self) -> None:
        """The token for the cluster's API, one for no audience, and one that has expired stay in the pod (CLI-45)."""
        folder = self.folder / "kubernetes.io" / "serviceaccount"
        folder.mkdir(parents=True)
        (folder / "token").write_text(token(CLAIMS))
        self.assertIn("for the cluster's own API", self.refusal(ProjectedToken(folder / "token", clock())))
        for claims, told in (
            ({**CLAIMS, "aud": None}, "for no audience"),
            ({**CLAIMS, "aud": []}, "for no audience"),
            ({**CLAIMS, "exp": NOW}, "subPath"),
        ):
            self.file.write_text(token(claims))
            told_of = self.refusal()
            self.assertIn(told, told_of)
            self.assertNotIn(token(claims).split(".")[1], told_of)


class PodTests(SynchronousTestCase):
    """What a token says of its pod."""

    def test_of(self) -> None:
        """Issuer, audience, namespace, service account, pod and node, and what names the host."""
        pod = Pod.of(token(CLAIMS))
        self.assertEqual(pod.subject, "system:serviceaccount:shop:billing")
        self.assertEqual(
            pod.about,
            {
                "issuer": "https://kubernetes.default.svc.cluster.local",
                "audience": "https://svc.example.org",
                "namespace": "shop",
                "serviceaccount_name": "billing",
                "serviceaccount_uid": "14ee3fa4-a7e2-420f-9f9a-dbc4507c3798",
                "pod_name": "billing-0",
                "pod_uid": "5e0bd49b-f040-43b0-99b7-22765a53f7f3",
                "node_name": "node-1",
                "node_uid": "646e7c5e-32d6-4d42-9dbd-e504e6cbe6b1",
            },
        )

    def test_odd_claims(self) -> None:
        """Claims of another form say nothing; a subject that is no service account is told."""
        pod = Pod.of(token({"sub": "system:serviceaccount:a:b", "aud": "x", "kubernetes.io": {"pod": 5, "namespace": [1]}}))
        self.assertEqual(pod.about, {"audience": "x"})
        self.assertEqual(Pod.of(token({"sub": "system:serviceaccount:a:b", "kubernetes.io": []})).about, {})
        for subject in (None, 5, "", "alice", "system:serviceaccount:a", "system:serviceaccount:a:b\n- !user evil"):
            self.assertRaises(NoIdentity, Pod.of, token({"sub": subject}))
