"""Paths of this room: `api_urlpatterns` below /api/v1/, `web_urlpatterns` below /."""

from django.urls import URLPattern, URLResolver, path

from .api import datasets as datasets_api
from .api import networks as networks_api
from .api import secrets as secrets_api
from .api import storages as storages_api
from .api import telemetry as telemetry_api
from .api import views
from .api import windows as windows_api
from .web import datasets, networks, pages, register, secrets, storages, telemetry, windows

api_urlpatterns: list[URLPattern | URLResolver] = [
    path("clusters", views.ClustersView.as_view(), name="api-clusters"),
    path("clusters/<uuid:cluster_id>", views.ClusterView.as_view(), name="api-cluster"),
    path("clusters/<uuid:cluster_id>/probe", views.ClusterProbeView.as_view(), name="api-cluster-probe"),
    path("clusters/<uuid:cluster_id>/cordon", views.ClusterCordonView.as_view(), name="api-cluster-cordon"),
    path("clusters/<uuid:cluster_id>/uncordon", views.ClusterUncordonView.as_view(), name="api-cluster-uncordon"),
    path("clusters/<uuid:cluster_id>/drain", views.ClusterDrainView.as_view(), name="api-cluster-drain"),
    path("clusters/<uuid:cluster_id>/nodes", views.ClusterNodesView.as_view(), name="api-cluster-nodes"),
    path("clusters/<uuid:cluster_id>/avoided-nodes", views.AvoidedNodesView.as_view(), name="api-avoided-nodes"),
    path(
        "clusters/<uuid:cluster_id>/avoided-nodes/<uuid:avoided_id>/clear",
        views.ClearAvoidedNodeView.as_view(),
        name="api-avoided-node-clear",
    ),
    path("clusters/<uuid:cluster_id>/flavors", views.ClusterFlavorsView.as_view(), name="api-cluster-flavors"),
    path("clusters/<uuid:cluster_id>/events", views.ClusterEventsView.as_view(), name="api-cluster-events"),
    path("clusters/<uuid:cluster_id>/storages", storages_api.StoragesView.as_view(), name="api-storages"),
    path(
        "clusters/<uuid:cluster_id>/storages/<uuid:storage_id>", storages_api.StorageView.as_view(), name="api-storage"
    ),
    path("clusters/<uuid:cluster_id>/networks", networks_api.NetworksView.as_view(), name="api-networks"),
    path(
        "clusters/<uuid:cluster_id>/networks/<uuid:network_id>", networks_api.NetworkView.as_view(), name="api-network"
    ),
    path("clusters/<uuid:cluster_id>/prometheus", telemetry_api.PrometheusView.as_view(), name="api-prometheus"),
    path("clusters/<uuid:cluster_id>/windows", windows_api.WindowsView.as_view(), name="api-windows"),
    path("clusters/<uuid:cluster_id>/windows/<uuid:window_id>", windows_api.WindowView.as_view(), name="api-window"),
    path(
        "clusters/<uuid:cluster_id>/windows/<uuid:window_id>/cancel",
        windows_api.CancelWindowView.as_view(),
        name="api-window-cancel",
    ),
    path("tenants/<uuid:tenant_id>/secrets", secrets_api.SecretsView.as_view(), name="api-secrets"),
    path("tenants/<uuid:tenant_id>/secrets/<slug:name>", secrets_api.SecretView.as_view(), name="api-secret"),
    path("datasets", datasets_api.DatasetsView.as_view(), name="api-datasets"),
    path("datasets/<uuid:dataset_id>", datasets_api.DatasetView.as_view(), name="api-dataset"),
]
web_urlpatterns: list[URLPattern | URLResolver] = [
    path("clusters/", pages.fleet, name="fleet"),
    path("clusters/register/", register.register, name="cluster-register"),
    path("clusters/access.yaml", register.access_manifest, name="cluster-access"),
    path("clusters/<uuid:cluster_id>/", pages.cluster, name="cluster"),
    path("clusters/<uuid:cluster_id>/storages/", storages.declare, name="storage-declare"),
    path("clusters/<uuid:cluster_id>/object-stores/", storages.declare_object_store, name="object-store-declare"),
    path("clusters/<uuid:cluster_id>/storage-classes/", storages.declare_class, name="storage-class-declare"),
    path("clusters/<uuid:cluster_id>/image-storages/", storages.declare_image, name="image-storage-declare"),
    path("clusters/<uuid:cluster_id>/storages/<uuid:storage_id>/remove/", storages.remove, name="storage-remove"),
    path("clusters/<uuid:cluster_id>/networks/", networks.declare, name="network-declare"),
    path("clusters/<uuid:cluster_id>/networks/<uuid:network_id>/remove/", networks.remove, name="network-remove"),
    path("clusters/<uuid:cluster_id>/prometheus/", telemetry.put, name="prometheus-set"),
    path("clusters/<uuid:cluster_id>/prometheus/remove/", telemetry.remove, name="prometheus-remove"),
    path("clusters/<uuid:cluster_id>/windows/", windows.plan, name="window-plan"),
    path("clusters/<uuid:cluster_id>/windows/<uuid:window_id>/cancel/", windows.cancel, name="window-cancel"),
    path("clusters/<uuid:cluster_id>/avoided/<uuid:avoided_id>/clear/", pages.clear, name="avoided-node-clear"),
    path("clusters/<uuid:cluster_id>/credential/", pages.replace_credential, name="cluster-credential"),
    path("clusters/<uuid:cluster_id>/<slug:verb>/", pages.act, name="cluster-act"),
    path("tenants/<uuid:tenant_id>/secrets/", secrets.secrets, name="secrets"),
    path("tenants/<uuid:tenant_id>/secrets/<slug:name>/delete/", secrets.delete, name="secret-delete"),
    path("datasets/", datasets.datasets, name="datasets"),
    path("datasets/<uuid:dataset_id>/", datasets.dataset, name="dataset"),
    path("datasets/<uuid:dataset_id>/remove/", datasets.remove, name="dataset-remove"),
]
