from hsparse.client.connection import Connection as Connection
from hsparse.client.dense_dataset import DenseDataset as DenseDataset
from hsparse.client.errors import AlreadyExists as AlreadyExists
from hsparse.client.errors import Unreachable as Unreachable
from hsparse.client.file import File as File
from hsparse.client.file import Folder as Folder
from hsparse.client.file import open as open
from hsparse.client.from_scipy import from_scipy as from_scipy
from hsparse.client.group import ExternalLink as ExternalLink
from hsparse.client.group import Group as Group
from hsparse.client.group import SoftLink as SoftLink
from hsparse.client.sparse_dataset import SparseDataset as SparseDataset
from hsparse.errors import BadRequest as BadRequest
from hsparse.errors import Busy as Busy
from hsparse.errors import Conflict as Conflict
from hsparse.errors import Corrupt as Corrupt
from hsparse.errors import Forbidden as Forbidden
from hsparse.errors import Gone as Gone
from hsparse.errors import HsparseError as HsparseError
from hsparse.errors import NotFound as NotFound
from hsparse.errors import PreconditionFailed as PreconditionFailed
from hsparse.errors import RateLimited as RateLimited
from hsparse.errors import StoreFailed as StoreFailed
from hsparse.errors import TooLarge as TooLarge
from hsparse.errors import Unauthenticated as Unauthenticated
from hsparse.errors import Unsupported as Unsupported

__version__: str
